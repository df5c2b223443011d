package datatype

import "fmt"

// Check returns an error unless all data of count elements is in a buffer of n bytes. The first element is at an
// offset.
func (t *Type) Check(n, offset, count int) error {
	if count < 0 {
		return fmt.Errorf("%w: count is %d", ErrArg, count)
	}
	if count == 0 || t.size == 0 {
		return nil
	}
	extent := t.Extent()
	if count-1 > maxSpan/max(extent, -extent, t.size) || offset > maxSpan || offset < -maxSpan {
		return fmt.Errorf("%w: %d elements at offset %d are beyond the limit of %d bytes", ErrArg, count, offset, maxSpan)
	}
	last := offset + (count-1)*extent
	low, end := min(offset, last)+t.data.low, max(offset, last)+t.data.end
	if low < 0 || end > n {
		return fmt.Errorf("%w: %d elements at offset %d have data from byte %d to %d, in a buffer of %d bytes", ErrArg, count, offset, low, end, n)
	}
	return nil
}

// CheckReceive is Check for a buffer that is written to: elements must not overlap.
func (t *Type) CheckReceive(n, offset, count int) error {
	if err := t.Check(n, offset, count); err != nil {
		return err
	}
	if t.Overlap(count) {
		return fmt.Errorf("%w: data of %d elements with an extent of %d bytes overlaps, and cannot be received", ErrArg, count, t.Extent())
	}
	return nil
}

// Pack copies the data of count elements in buf, of which the first one is at an offset, to packed, which has
// their size.
func (t *Type) Pack(packed, buf []byte, offset, count int) error {
	if err := t.Check(len(buf), offset, count); err != nil {
		return err
	}
	if err := t.checkPacked(packed, count); err != nil {
		return err
	}
	t.each(offset, count, func(at, n int) { packed = packed[copy(packed, buf[at:at+n]):] })
	return nil
}

// Unpack copies packed data to count elements in buf.
func (t *Type) Unpack(buf []byte, offset, count int, packed []byte) error {
	if err := t.CheckReceive(len(buf), offset, count); err != nil {
		return err
	}
	if err := t.checkPacked(packed, count); err != nil {
		return err
	}
	t.each(offset, count, func(at, n int) { packed = packed[copy(buf[at:at+n], packed):] })
	return nil
}

// checkPacked checks the length of packed data, after Check.
func (t *Type) checkPacked(packed []byte, count int) error {
	if len(packed) != count*t.size {
		return fmt.Errorf("%w: %d packed bytes of %d elements of %d bytes", ErrArg, len(packed), count, t.size)
	}
	return nil
}

// each calls do for the runs of count elements.
func (t *Type) each(offset, count int, do func(at, n int)) {
	if at, n, isOne := t.Run(count); isOne {
		if n > 0 {
			do(offset+at, n)
		}
		return
	}
	for i, extent := 0, t.Extent(); i < count; i++ {
		for _, r := range t.runs {
			do(offset+i*extent+r.offset, r.n)
		}
	}
}
