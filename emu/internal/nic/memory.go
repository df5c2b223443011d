package nic

import (
	"errors"

	"github.com/fabrictest/fabrictest/verbs"
)

// RegMR registers memory. addr is the virtual address of its first byte; if it is
// zero, the NIC chooses one, unless access includes AccessZeroBased.
func (b *Base) RegMR(pd PD, mem Memory, addr uint64, access verbs.Access) (*Region, error) {
	const remoteStore = verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	if access&remoteStore != 0 && access&verbs.AccessLocalWrite == 0 {
		return nil, OpError("reg_mr", "", "%w: remote write and atomic access need local write access", verbs.ErrInvalid)
	}
	if err := b.CheckPD("reg_mr", pd); err != nil {
		return nil, err
	}
	zeroBased := access&verbs.AccessZeroBased != 0
	if zeroBased {
		addr = 0
	}
	if addr+mem.Len() < addr {
		return nil, OpError("reg_mr", "", "%w: %d bytes at %#x wrap around", verbs.ErrInvalid, mem.Len(), addr)
	}
	r, err := b.Mem.Register(pd, mem, addr, zeroBased, access)
	if err != nil {
		return nil, OpError("reg_mr", "", "%w: %w", verbs.ErrNoMemory, err)
	}
	b.pds[pd]++
	return r, nil
}

// DeregMR deregisters a region.
func (b *Base) DeregMR(r *Region) error {
	if err := b.Mem.Deregister(r); err != nil {
		cause := verbs.ErrInvalid
		if errors.Is(err, ErrInUse) {
			cause = verbs.ErrBusy
		}
		return OpError("dereg_mr", "", "%w: %w", cause, err)
	}
	b.pds[r.PD]--
	return nil
}

// AllocMW allocates a memory window.
func (b *Base) AllocMW(pd PD, typ verbs.MWType) (*Window, error) {
	if typ != verbs.MWType1 && typ != verbs.MWType2 {
		return nil, OpError("alloc_mw", "", "%w: type %d", verbs.ErrInvalid, typ)
	}
	if err := b.CheckPD("alloc_mw", pd); err != nil {
		return nil, err
	}
	w, err := b.Mem.AllocWindow(pd, typ)
	if err != nil {
		return nil, OpError("alloc_mw", "", "%w: %w", verbs.ErrNoMemory, err)
	}
	b.pds[pd]++
	return w, nil
}

// DeallocMW deallocates a memory window, bound or not.
func (b *Base) DeallocMW(w *Window) {
	if b.Mem.FreeWindow(w) {
		b.pds[w.PD]--
	}
}

// Writable reports whether the keys of sgl allow to write its first length bytes.
func (b *Base) Writable(sgl []verbs.SGE, pd PD, length int) bool {
	return b.checkWritable(sgl, pd, 0, length) == nil
}

// checkWritable returns an error if the keys of sgl do not permit a write of length bytes at off.
func (b *Base) checkWritable(sgl []verbs.SGE, pd PD, off uint32, length int) error {
	return EachSGE(sgl, off, length, func(s *verbs.SGE, off uint32, _, size int) error {
		_, _, err := b.Mem.Local(s.LKey, pd, s.Addr+uint64(off), uint64(size), verbs.AccessLocalWrite)
		return err
	})
}

// Gather fills dst from sgl, starting at byte off.
func (b *Base) Gather(dst []byte, sgl []verbs.SGE, pd PD, off uint32) error {
	if isOneEntry(sgl, off, len(dst)) { // without EachSGE, because it is the path of most packets
		mem, pos, err := b.Mem.Local(sgl[0].LKey, pd, sgl[0].Addr+uint64(off), uint64(len(dst)), 0)
		if err != nil {
			return err
		}
		return mem.ReadAt(dst, pos)
	}
	return EachSGE(sgl, off, len(dst), func(s *verbs.SGE, off uint32, at, size int) error {
		mem, pos, err := b.Mem.Local(s.LKey, pd, s.Addr+uint64(off), uint64(size), 0)
		if err != nil {
			return err
		}
		return mem.ReadAt(dst[at:at+size], pos)
	})
}

// Scatter writes src to sgl, starting at byte off. It checks all entries before it writes.
func (b *Base) Scatter(sgl []verbs.SGE, pd PD, off uint32, src []byte) error {
	if len(src) == 0 {
		return nil
	}
	if isOneEntry(sgl, off, len(src)) {
		mem, pos, err := b.Mem.Local(sgl[0].LKey, pd, sgl[0].Addr+uint64(off), uint64(len(src)), verbs.AccessLocalWrite)
		if err != nil {
			return err
		}
		return WritePart(mem, src, pos) // the completion tells that the data is there
	}
	if err := b.checkWritable(sgl, pd, off, len(src)); err != nil {
		return err
	}
	return EachSGE(sgl, off, len(src), func(s *verbs.SGE, off uint32, at, size int) error {
		mem, pos, err := b.Mem.Local(s.LKey, pd, s.Addr+uint64(off), uint64(size), verbs.AccessLocalWrite)
		if err != nil {
			return err
		}
		return mem.WriteAt(src[at:at+size], pos)
	})
}

// isOneEntry reports whether the range [off, off+length) of sgl is not empty, and in its first entry.
func isOneEntry(sgl []verbs.SGE, off uint32, length int) bool {
	return len(sgl) > 0 && length > 0 && uint64(off)+uint64(length) <= uint64(sgl[0].Length)
}

// EachSGE calls f for each part of the range [off, off+length) of sgl, with the entry, the offset
// in the entry, the offset in the range, and the size. It ignores a part of the range beyond sgl.
func EachSGE(sgl []verbs.SGE, off uint32, length int, f func(s *verbs.SGE, off uint32, at, size int) error) error {
	at := 0
	for i := range sgl {
		s := &sgl[i]
		if off >= s.Length {
			off -= s.Length
			continue
		}
		size := min(int(s.Length-off), length-at)
		if err := f(s, off, at, size); err != nil {
			return err
		}
		at += size
		off = 0
		if at == length {
			return nil
		}
	}
	return nil
}
