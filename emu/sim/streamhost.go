package sim

import (
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// StreamHost is the stream stack of one port: a link.StreamNet.
type StreamHost struct {
	port       *Port
	slots      []streamSlot // by StreamID; 0 is unused
	free       []link.StreamID
	readyQueue nic.FIFO[link.StreamID] // IDs for Ready to report
	reported   []link.StreamID         // reported by the last Ready
	onReady    callback
	closed     bool
}

// streamSlot is a stream or listener of a StreamHost.
type streamSlot struct {
	stream             *Stream
	listener           *hostListener
	readable, writable bool // to be reported by Ready
	queued             bool
}

var _ link.StreamNet = (*StreamHost)(nil)

// StreamHost returns the stream stack of the port, which dials from and listens on the port's
// addresses. After the stack is closed, the next call returns a new one.
func (p *Port) StreamHost() *StreamHost {
	if p.host == nil || p.host.closed && !p.closed {
		p.host = &StreamHost{port: p, slots: make([]streamSlot, 1), closed: p.closed} // ID 0 is not used
	}
	return p.host
}

// OnReady runs to, in an event, when Ready has streams to report.
func (h *StreamHost) OnReady(to Handler, arg uint64) { h.onReady = callback{to, arg} }

// Dial implements link.StreamNet. An unspecified local means the first address of remote's family.
func (h *StreamHost) Dial(_ mono.Time, local, remote netip.AddrPort) (link.StreamLink, error) {
	local, remote = canonicalAddrPort(local), canonicalAddrPort(remote)
	if h.closed {
		return nil, addrError("dial to", remote, link.ErrClosed)
	}
	if local.Addr().IsUnspecified() || !local.Addr().IsValid() {
		for _, a := range h.port.cfg.Addrs {
			if a.Is4() == remote.Addr().Is4() {
				local = netip.AddrPortFrom(a, local.Port())
				break
			}
		}
	}
	if h.port.net.byAddr[local.Addr()] != h.port {
		return nil, addrError("dial from", local, fmt.Errorf("port %s has %v: %w", h.port.cfg.Name, h.port.cfg.Addrs, link.ErrUnreachable))
	}
	s, err := h.port.net.DialStream(local, remote)
	if err != nil {
		return nil, err
	}
	h.register(s)
	return s, nil
}

// Listen implements link.StreamNet.
func (h *StreamHost) Listen(addr netip.AddrPort, backlog int) (link.StreamListener, error) {
	addr = canonicalAddrPort(addr)
	switch {
	case h.closed:
		return nil, addrError("listen on", addr, link.ErrClosed)
	case backlog < 1:
		return nil, addrError("listen on", addr, fmt.Errorf("a backlog of %d: want at least 1", backlog))
	}
	l, err := h.port.listen(addr, min(backlog, maxBacklog))
	if err != nil {
		return nil, err
	}
	withID := &hostListener{Listener: l, host: h}
	withID.id = h.allocID(streamSlot{listener: withID})
	l.OnAccept((*streamReadyHandler)(h), readableArg(withID.id))
	return withID, nil
}

// register gives a stream an ID, with which Ready reports that it is readable or writable.
func (h *StreamHost) register(s *Stream) {
	s.host = h
	s.id = h.allocID(streamSlot{stream: s})
	s.OnReadable((*streamReadyHandler)(h), readableArg(s.id))
	s.OnWritable((*streamReadyHandler)(h), writableArg(s.id))
}

// allocID stores slot under a free StreamID.
func (h *StreamHost) allocID(slot streamSlot) link.StreamID {
	if k := len(h.free); k > 0 {
		id := h.free[k-1]
		h.free = h.free[:k-1]
		slot.queued = h.slots[id].queued // the ID may still be in readyQueue
		h.slots[id] = slot
		return id
	}
	h.slots = append(h.slots, slot)
	return link.StreamID(len(h.slots) - 1)
}

// freeID makes an ID available again.
func (h *StreamHost) freeID(id link.StreamID) {
	h.slots[id] = streamSlot{queued: h.slots[id].queued}
	h.free = append(h.free, id)
}

// streamReadyHandler is a StreamHost as the handler of the events of its streams.
type streamReadyHandler StreamHost

// readableArg and writableArg are the arguments of streamReadyHandler for a stream.
func readableArg(id link.StreamID) uint64 { return uint64(id) << 1 }
func writableArg(id link.StreamID) uint64 { return uint64(id)<<1 | 1 }

// HandleEvent marks a stream ready; arg is its ID shifted left, with bit 0 set for writable. If the
// ID has been reused, its new owner is reported spuriously.
func (e *streamReadyHandler) HandleEvent(now mono.Time, arg uint64) {
	h := (*StreamHost)(e)
	events := readyToRead
	if arg&1 != 0 {
		events = readyToWrite
	}
	h.markReady(link.StreamID(arg>>1), events)
	if !h.port.frozen {
		h.onReady.call(now)
	}
}

type readiness uint8

const (
	readyToRead readiness = 1 << iota
	readyToWrite
)

// markReady makes Ready report a stream or listener as readable, writable or both.
func (h *StreamHost) markReady(id link.StreamID, events readiness) {
	slot := &h.slots[id]
	slot.readable = slot.readable || events&readyToRead != 0
	slot.writable = slot.writable || events&readyToWrite != 0
	if !slot.queued {
		slot.queued = true
		h.readyQueue.Push(id)
	}
}

// Ready implements link.StreamNet: it reports queued streams and listeners, and again those that it
// reported the last time and that still have something to read or accept.
func (h *StreamHost) Ready(ready []link.StreamReady) int {
	if h.port.frozen {
		return 0
	}
	for _, id := range h.reported { // since Read returns at most one segment, there may be more
		if h.slots[id].hasUnread() {
			h.markReady(id, readyToRead)
		}
	}
	h.reported = h.reported[:0]
	n := 0
	for n < len(ready) && h.readyQueue.Len() > 0 {
		id, _ := h.readyQueue.Pop()
		slot := &h.slots[id]
		slot.queued = false
		if slot.stream == nil && slot.listener == nil {
			continue // closed since
		}
		ready[n] = link.StreamReady{ID: id, Readable: slot.readable, Writable: slot.writable}
		slot.readable, slot.writable = false, false
		h.reported = append(h.reported, id)
		n++
	}
	return n
}

// hasUnread reports whether there is more to read or to accept.
func (s *streamSlot) hasUnread() bool {
	if s.listener != nil {
		return s.listener.acceptQueue.Len() > 0
	}
	return s.stream != nil && (s.stream.in.Len() > 0 || (s.stream.eof || s.stream.err != nil) && !s.stream.endReported)
}

// Close implements link.StreamNet. It aborts the streams on which CloseWrite was not called, and
// lets the others finish.
func (h *StreamHost) Close() error {
	if h.closed {
		return fmt.Errorf("streams of port %s: %w", h.port.cfg.Name, link.ErrClosed)
	}
	h.closed = true
	for i := range h.slots {
		switch slot := h.slots[i]; {
		case slot.listener != nil:
			_ = slot.listener.Close()
		case slot.stream != nil && slot.stream.finQueued:
			slot.stream.releaseID()
		case slot.stream != nil:
			_ = slot.stream.Abort(h.port.net.w.now)
		}
	}
	return nil
}

// hostListener is a Listener of a StreamHost.
type hostListener struct {
	*Listener
	host *StreamHost
	id   link.StreamID
}

func (l *hostListener) ID() link.StreamID { return l.id }

// Accept implements link.StreamListener. While the port is frozen it returns nil.
func (l *hostListener) Accept(mono.Time) (link.StreamLink, error) {
	if l.host.port.frozen && !l.closed {
		return nil, nil
	}
	s, err := l.Listener.Accept()
	if s == nil {
		return nil, err
	}
	l.host.register(s)
	if s.in.Len() > 0 || s.eof || s.err != nil {
		l.host.markReady(s.id, readyToRead) // arrived before Accept
	}
	return s, nil
}

// Close implements link.StreamListener: it frees the listener's ID and stops listening.
func (l *hostListener) Close() error {
	if !l.closed {
		l.host.freeID(l.id)
	}
	return l.Listener.Close()
}
