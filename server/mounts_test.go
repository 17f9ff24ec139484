package server

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/client"
	"github.com/snapfs/snapfs/snapshot"
)

// fakeMounter notes what it is asked.
type fakeMounter struct {
	asked []string
	err   error
	panic bool
}

func (m *fakeMounter) Mount(_ context.Context, req snapshot.MountRequest) error {
	if m.panic {
		panic("out of order")
	}
	m.asked = append(m.asked, fmt.Sprintf("mount %+v", req))
	return m.err
}

func (m *fakeMounter) Unmount(_ context.Context, req snapshot.UnmountRequest) error {
	m.asked = append(m.asked, fmt.Sprintf("unmount %+v", req))
	return m.err
}

func (m *fakeMounter) Mounts() []snapshot.MountInfo {
	return []snapshot.MountInfo{{Mountpoint: "/mnt", Inodes: 7}}
}

func (m *fakeMounter) Requests() map[string]uint64 { return map[string]uint64{"READ": 3} }

func TestMounts(t *testing.T) {
	m := &fakeMounter{}
	s := newServer(t, Options{Mounter: m})
	listen(t, s)
	h, err := client.Dial(t.Context(), s.store.Dir())
	require.NoError(t, err)
	defer h.Close()
	odd := "/mnt/a b?c=d&e%2F\u00e9"
	require.NoError(t, h.Mount(t.Context(), snapshot.MountRequest{Mountpoint: odd, AllowOther: true, XAttrs: true, Threads: []string{"a/b", "c"}}))
	require.NoError(t, h.Unmount(t.Context(), snapshot.UnmountRequest{Mountpoint: odd, Lazy: true}))
	require.NoError(t, h.Unmount(t.Context(), snapshot.UnmountRequest{Mountpoint: odd}))
	require.Equal(t, []string{
		"mount {Mountpoint:" + odd + " Bytes:[] AllowOther:true XAttrs:true Threads:[a/b c]}",
		"unmount {Mountpoint:" + odd + " Lazy:true}",
		"unmount {Mountpoint:" + odd + " Lazy:false}",
	}, m.asked)
	st, err := h.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, os.Getpid(), st.Daemon)
	require.Equal(t, m.Requests(), st.Fuse.Requests)
	require.Equal(t, m.Mounts(), st.Mounts)

	m.err = snapshot.WithHint(fmt.Errorf("/mnt: %w", snapshot.ErrMountBusy), "leave it")
	err = h.Unmount(t.Context(), snapshot.UnmountRequest{Mountpoint: "/mnt"})
	require.ErrorIs(t, err, snapshot.ErrMountBusy)
	require.EqualError(t, err, m.err.Error())
	require.Equal(t, "leave it", snapshot.Hint(err))
}

func TestPanics(t *testing.T) {
	var log bytes.Buffer
	s := newServer(t, Options{Mounter: &fakeMounter{panic: true}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	resp, body := ask(t, s, "POST", "/v1/mounts", `{"mountpoint":"/mnt"}`)
	require.Equal(t, 500, resp.StatusCode)
	e := refused(t, resp, body)
	require.Equal(t, client.CodeInternal, e.Code)
	require.NotContains(t, body, "out of order")
	require.Contains(t, log.String(), "out of order")
}
