package engine

import (
	"errors"

	"github.com/fabrictest/fabrictest/emu/internal/core"
	"github.com/fabrictest/fabrictest/verbs"
)

// RegMR registers memory. addr is what peers call its first byte; zero lets the
// NIC choose, unless access asks for a zero-based region.
func (n *NIC) RegMR(pd core.PD, mem core.Memory, addr uint64, access verbs.Access) (*core.Region, error) {
	const remoteStore = verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	if access&remoteStore != 0 && access&verbs.AccessLocalWrite == 0 {
		return nil, opError("reg_mr", "", "%w: remote write and atomic access need local write access", verbs.ErrInvalid)
	}
	if err := n.checkPD("reg_mr", pd); err != nil {
		return nil, err
	}
	if n.q.NoEmptyMR && mem.Len() == 0 {
		return nil, opError("reg_mr", "", "%w: no bytes", verbs.ErrInvalid)
	}
	zeroBased := access&verbs.AccessZeroBased != 0
	if zeroBased {
		addr = 0
	}
	if addr+mem.Len() < addr {
		return nil, opError("reg_mr", "", "%w: %d bytes at %#x wrap around", verbs.ErrInvalid, mem.Len(), addr)
	}
	r, err := n.mem.Register(pd, mem, addr, zeroBased, access)
	if err != nil {
		return nil, opError("reg_mr", "", "%w: %w", verbs.ErrNoMemory, err)
	}
	n.pds[pd]++
	return r, nil
}

// DeregMR removes a region.
func (n *NIC) DeregMR(r *core.Region) error {
	if err := n.mem.Deregister(r); err != nil {
		cause := verbs.ErrInvalid
		if errors.Is(err, core.ErrInUse) {
			cause = verbs.ErrBusy
		}
		return opError("dereg_mr", "", "%w: %w", cause, err)
	}
	n.pds[r.PD]--
	return nil
}

// AllocMW makes a memory window.
func (n *NIC) AllocMW(pd core.PD, typ verbs.MWType) (*core.Window, error) {
	if typ != verbs.MWType1 && typ != verbs.MWType2 {
		return nil, opError("alloc_mw", "", "%w: type %d", verbs.ErrInvalid, typ)
	}
	if err := n.checkPD("alloc_mw", pd); err != nil {
		return nil, err
	}
	w, err := n.mem.AllocWindow(pd, typ)
	if err != nil {
		return nil, opError("alloc_mw", "", "%w: %w", verbs.ErrNoMemory, err)
	}
	n.pds[pd]++
	return w, nil
}

// DeallocMW removes a memory window, bound or not.
func (n *NIC) DeallocMW(w *core.Window) {
	if n.mem.FreeWindow(w) {
		n.pds[w.PD]--
	}
}

// sinkOK checks that the answer to a READ or an atomic may be written where the
// request says. It is asked before the request leaves: an atomic whose result
// has no place must not be executed.
func (q *QP) sinkOK(w *sendWQE) bool {
	switch w.op {
	case verbs.OpRDMARead:
	case verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd:
		if q.nic.q.AtomicSinkUnchecked {
			return true
		}
	default:
		return true
	}
	return q.nic.eachSGE(w.sges, 0, int(w.length), func(s *verbs.SGE, off uint32, _, size int) error {
		_, _, err := q.nic.mem.Local(s.LKey, q.pd, s.Addr+uint64(off), uint64(size), verbs.AccessLocalWrite)
		return err
	}) == nil
}

// gather fills dst with the payload of w from byte off on.
func (q *QP) gather(dst []byte, w *sendWQE, off uint32) error {
	if w.inline != nil {
		copy(dst, w.inline[off:])
		return nil
	}
	for i := range w.sges {
		s := &w.sges[i]
		if off >= s.Length {
			off -= s.Length
			continue
		}
		n := min(int(s.Length-off), len(dst))
		mem, at, err := q.nic.mem.Local(s.LKey, q.pd, s.Addr+uint64(off), uint64(n), 0)
		if err != nil {
			return err
		}
		if err := mem.ReadAt(dst[:n], at); err != nil {
			return err
		}
		dst = dst[n:]
		off = 0
		if len(dst) == 0 {
			return nil
		}
	}
	return nil
}

// scatter writes src into the memory that sges name, from byte off on. It
// checks every entry that it touches before it writes to the first.
func (n *NIC) scatter(sges []verbs.SGE, pd core.PD, off uint32, src []byte) error {
	if len(src) == 0 {
		return nil
	}
	if err := n.eachSGE(sges, off, len(src), func(s *verbs.SGE, off uint32, _, n2 int) error {
		_, _, err := n.mem.Local(s.LKey, pd, s.Addr+uint64(off), uint64(n2), verbs.AccessLocalWrite)
		return err
	}); err != nil {
		return err
	}
	return n.eachSGE(sges, off, len(src), func(s *verbs.SGE, off uint32, at, n2 int) error {
		mem, pos, err := n.mem.Local(s.LKey, pd, s.Addr+uint64(off), uint64(n2), verbs.AccessLocalWrite)
		if err != nil {
			return err
		}
		return mem.WriteAt(src[at:at+n2], pos)
	})
}

// eachSGE calls f for every piece of [off, off+length) in sges: the entry, the
// piece's offset in it, its offset in the range, and its size.
func (n *NIC) eachSGE(sges []verbs.SGE, off uint32, length int, f func(s *verbs.SGE, off uint32, at, size int) error) error {
	at := 0
	for i := range sges {
		s := &sges[i]
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
