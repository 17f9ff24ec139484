package secrets

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// PackRanges returns ranges as bytes: of each, its distance from the end of the one
// before, and its length, as uvarints.
func PackRanges(ranges []Range) []byte {
	var data []byte
	end := int64(0)
	for _, r := range ranges {
		data = binary.AppendUvarint(data, uint64(r.Off-end))
		data = binary.AppendUvarint(data, uint64(r.Len))
		end = r.End()
	}
	return data
}

// UnpackRanges is the inverse of [PackRanges], for at most some ranges. It takes no
// other bytes than that writes.
func UnpackRanges(data []byte, most int) ([]Range, error) {
	if len(data) == 0 {
		return nil, nil
	}
	numbers := 0 // each ends with a byte that has not the highest bit
	for _, b := range data {
		if b < 0x80 {
			numbers++
		}
	}
	if numbers/2 > most {
		return nil, fmt.Errorf("more than %d stretches", most)
	}
	ranges := make([]Range, 0, numbers/2)
	end := uint64(0)
	number := func() (uint64, bool) {
		v, n := binary.Uvarint(data)
		if n <= 0 || n > 1 && data[n-1] == 0 || v > math.MaxInt64 {
			return 0, false
		}
		data = data[n:]
		return v, true
	}
	for len(data) > 0 {
		gap, ok := number()
		length, also := number()
		if !ok || !also || gap > math.MaxInt64-end || length == 0 || length > math.MaxInt64-end-gap {
			return nil, errors.New("stretches that are none")
		}
		ranges = append(ranges, Range{Off: int64(end + gap), Len: int64(length)})
		end += gap + length
	}
	return ranges, nil
}
