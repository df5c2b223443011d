package mpi

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/fabrictest/fabrictest/mpi/misuse"
	"github.com/fabrictest/fabrictest/mpi/window"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// Win is an RMA window: memory of each rank of a communicator that the other ranks can
// access. Offsets are in bytes. An operation is complete, and its buffers are free for
// use, when its epoch is closed or flushed.
type Win struct {
	c      *Comm // duplicate of the communicator that it was created on
	engine *window.Window
	mem    []byte
	freed  bool
}

// WinCreate is collective. It creates a window on each rank's buffer, which may be empty.
// Accumulates are fastest on 8-byte aligned buffers of 8n bytes, as WinAllocate allocates.
func (c *Comm) WinCreate(buf []byte) (*Win, error) {
	return c.createWin("WinCreate", buf, len(buf), nil)
}

// WinAllocate is collective. It creates a window on new memory; sizes may differ between ranks.
func (c *Comm) WinAllocate(size int) (*Win, error) {
	if size < 0 { // take part in the exchange, so that the others do not wait
		return c.createWin("WinAllocate", nil, 0, fmt.Errorf("%w: %d bytes", ErrArg, size))
	}
	words := make([]uint64, (size+7)/8)
	mem := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8)
	return c.createWin("WinAllocate", mem, size, nil)
}

// createWin creates a window on the first size bytes of mem. If err is not nil, it only
// announces the failure to the other ranks.
func (c *Comm) createWin(call string, mem []byte, size int, err error) (*Win, error) {
	if c.check() == nil {
		defer c.beginCollective(misuse.Call{Name: call, Root: -1})()
	}
	return lockedResult(c, call, c.check(), func() (*Win, error) { return c.createWinLocked(mem, size, err) })
}

// createWinLocked creates a window together with the other ranks. err, if not nil, is why this rank
// has no memory for it: all ranks fail, after the exchange. The caller holds the lock.
func (c *Comm) createWinLocked(mem []byte, size int, err error) (*Win, error) {
	d, derr := c.dup(c.name + ".window")
	if derr != nil {
		return nil, errors.Join(err, derr)
	}
	engine := c.rank.windows
	nicAtomics := c.rank.carrier.Atomics() && address(mem)%8 == 0 // NICs execute atomics on aligned words only
	local, region, rerr := engine.RegisterSegment(mem, nicAtomics)
	local.Size = size
	segments, gerr := d.exchangeSegments(local, c.rank.carrier.Atomics(), errors.Join(err, rerr))
	if gerr != nil {
		engine.ReleaseSegment(region)
		d.free()
		return nil, gerr
	}
	w := &Win{c: d, mem: mem[:size:size]}
	w.engine = engine.Open(d.context, segments, w.mem, region)
	if c.rank.races != nil {
		c.rank.races.openWindow(w)
	}
	// No rank may access the window before all ranks have opened it.
	if err := d.barrier(); err != nil {
		w.close()
		return nil, err
	}
	if t := c.rank.calls; t != nil {
		t.newWindow(w)
	}
	return w, nil
}

// close releases the window. The caller holds the lock.
func (w *Win) close() {
	w.freed = true
	if w.c.rank.races != nil {
		w.c.rank.races.closeWindow(w)
	}
	w.engine.Close()
	w.c.free()
}

// check returns an error if the window cannot be used.
func (w *Win) check() error {
	switch {
	case w == nil:
		return fmt.Errorf("%w: it is nil", ErrWin)
	case w.freed:
		return fmt.Errorf("%w: it was freed", ErrWin)
	}
	return w.c.check()
}

// comm returns the communicator whose error handler is used; nil for a nil window.
func (w *Win) comm() *Comm {
	if w == nil {
		return nil
	}
	return w.c
}

// Memory is the local window memory.
func (w *Win) Memory() []byte { return w.mem }

// Size is the size of a rank's window memory in bytes.
func (w *Win) Size(rank int) int { return w.engine.Size(rank) }

// call runs do with the lock held, if the window can be used.
func (w *Win) call(name string, do func(*window.Window) error) error {
	return w.comm().locked(name, w.check(), func() error { return do(w.engine) })
}

// Free is collective. It frees the window; no epoch may be open.
func (w *Win) Free() error {
	return w.call("Win.Free", func(e *window.Window) error {
		if err := e.CheckNoEpoch(); err != nil {
			return err
		}
		end := w.c.beginCollective(misuse.Call{Name: "Win.Free", Root: -1})
		err := w.c.barrier()
		end()
		if f := w.c.rank.opts.OnWinFree; f != nil {
			f(w.c.rank.env.Rank, w.c.name, w.mem)
		}
		w.close()
		if t := w.c.rank.calls; t != nil {
			t.windows[w].Freed()
		}
		return err
	})
}

// checkTarget validates a rank of the window; for an operation that permits ProcNull, the caller
// does not call it with ProcNull.
func (w *Win) checkTarget(rank int) error {
	if rank < 0 || rank >= w.c.size {
		return fmt.Errorf("%w: target %d; the window has ranks 0 to %d", ErrRank, rank, w.c.size-1)
	}
	return nil
}

// checkGroup validates the group of Post or Start.
func (w *Win) checkGroup(group []int) error {
	seen := make(map[int]bool, len(group))
	for _, r := range group {
		if err := w.checkTarget(r); err != nil {
			return err
		}
		if seen[r] {
			return fmt.Errorf("%w: rank %d is in the group twice", ErrArg, r)
		}
		seen[r] = true
	}
	return nil
}

// segmentLen is the length of an encoded segment: size, address, keys, number of keys, flags.
const segmentLen = 8 + 8 + 4*wire.MaxRails + 2

// Flags of an encoded segment.
const (
	segmentAtomics    = 1 << iota // NIC atomics work on all of its words
	segmentNICAtomics             // the NICs of its rank support atomics
	segmentFailed                 // the rank has no segment
)

// encodeSegment encodes a segment and its flags (segmentAtomics, …) in segmentLen bytes.
func encodeSegment(s *window.Segment, flags byte) []byte {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, segmentLen), uint64(s.Size))
	b = binary.LittleEndian.AppendUint64(b, s.Memory.Addr)
	for _, key := range s.Memory.Keys {
		b = binary.LittleEndian.AppendUint32(b, key)
	}
	return append(b, s.Memory.Rails, flags)
}

// decodeSegment decodes the segment and the flags that encodeSegment encoded.
func decodeSegment(b []byte) (s window.Segment, flags byte) {
	s.Size = int(binary.LittleEndian.Uint64(b))
	s.Memory.Addr = binary.LittleEndian.Uint64(b[8:])
	for i := range s.Memory.Keys {
		s.Memory.Keys[i] = binary.LittleEndian.Uint32(b[16+4*i:])
	}
	s.Memory.Rails, flags = b[segmentLen-2], b[segmentLen-1]
	return s, flags
}

// exchangeSegments gathers the window segments of all ranks. failed is why this rank has none;
// all ranks return an error then. It enables NIC atomics only if all ranks' NICs support them,
// since accumulates by NICs and by target CPUs are not atomic with each other.
func (c *Comm) exchangeSegments(local window.Segment, supportsAtomics bool, failed error) ([]window.Segment, error) {
	var flags byte
	if local.Atomics {
		flags |= segmentAtomics
	}
	if supportsAtomics {
		flags |= segmentNICAtomics
	}
	if failed != nil {
		flags |= segmentFailed
	}
	all := make([]byte, segmentLen*c.size)
	if err := c.runInternal(c.allgatherCall(encodeSegment(&local, flags), all)); err != nil {
		return nil, errors.Join(failed, err)
	}
	segments := make([]window.Segment, c.size)
	allSupportAtomics := true
	for i := range segments {
		segment, peerFlags := decodeSegment(all[segmentLen*i:])
		segment.Peer, segment.Atomics = c.worldRank(i), peerFlags&segmentAtomics != 0
		segments[i] = segment
		allSupportAtomics = allSupportAtomics && peerFlags&segmentNICAtomics != 0
		if peerFlags&segmentFailed != 0 && failed == nil {
			failed = fmt.Errorf("%w: rank %d of %s failed to create its segment", ErrWin, i, c.name)
		}
	}
	for i := range segments {
		segments[i].Atomics = segments[i].Atomics && allSupportAtomics
	}
	return segments, failed
}
