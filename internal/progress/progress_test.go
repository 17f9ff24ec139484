package progress

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMeter(t *testing.T) {
	require.Nil(t, From(t.Context()))
	var none *Meter
	none.Add(1, 1)
	none.Expect(1, 1)
	require.Zero(t, none.State())

	m := &Meter{}
	got := From(With(t.Context(), m))
	got.Expect(10, 1000)
	got.Add(1, 100)
	got.Add(2, 50)
	require.Equal(t, State{Items: 3, Bytes: 150, AllItems: 10, AllBytes: 1000}, m.State())
}
