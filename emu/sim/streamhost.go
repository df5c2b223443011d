package sim

import (
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// StreamHost is the streams of one port: a link.StreamNet.
type StreamHost struct {
	port   *Port
	slots  []streamSlot // by number; 0 is nobody's
	free   []link.StreamID
	queue  ring[link.StreamID] // that have something to be named for
	named  []link.StreamID     // by the last Ready
	hook   hook
	closed bool
}

// streamSlot is what a StreamHost knows of a stream or a listener.
type streamSlot struct {
	stream             *Stream
	listener           *hostListener
	readable, writable bool // not named since
	queued             bool
}

var _ link.StreamNet = (*StreamHost)(nil)

// StreamHost returns the streams of the port: it dials from its addresses and
// listens on them. A port has one at a time: one that was closed is followed by another.
func (p *Port) StreamHost() *StreamHost {
	if p.host == nil || p.host.closed && !p.closed {
		p.host = &StreamHost{port: p, slots: make([]streamSlot, 1), closed: p.closed}
	}
	return p.host
}

// OnReady runs h, in an event, when Ready has come to have something to name.
func (h *StreamHost) OnReady(to Handler, arg uint64) { h.hook = hook{to, arg} }

// Dial implements link.StreamNet.
func (h *StreamHost) Dial(_ mono.Time, local, remote netip.AddrPort) (link.StreamLink, error) {
	local, remote = plainPort(local), plainPort(remote)
	if h.closed {
		return nil, streamErr("dial to", remote, link.ErrClosed)
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
		return nil, streamErr("dial from", local, fmt.Errorf("port %s has %v: %w", h.port.cfg.Name, h.port.cfg.Addrs, link.ErrUnreachable))
	}
	s, err := h.port.net.DialStream(local, remote)
	if err != nil {
		return nil, err
	}
	h.adopt(s)
	return s, nil
}

// Listen implements link.StreamNet.
func (h *StreamHost) Listen(addr netip.AddrPort, backlog int) (link.StreamListener, error) {
	addr = plainPort(addr)
	switch {
	case h.closed:
		return nil, streamErr("listen on", addr, link.ErrClosed)
	case backlog < 1:
		return nil, streamErr("listen on", addr, fmt.Errorf("a backlog of %d: want at least 1", backlog))
	}
	l, err := h.port.listen(addr, min(backlog, backlogMax))
	if err != nil {
		return nil, err
	}
	own := &hostListener{Listener: l, host: h}
	own.id = h.allot(streamSlot{listener: own})
	l.OnAccept((*streamEvent)(h), readableEvent(own.id))
	return own, nil
}

func (h *StreamHost) adopt(s *Stream) {
	s.host = h
	s.id = h.allot(streamSlot{stream: s})
	s.OnReadable((*streamEvent)(h), readableEvent(s.id))
	s.OnWritable((*streamEvent)(h), writableEvent(s.id))
}

// allot finds a number.
func (h *StreamHost) allot(slot streamSlot) link.StreamID {
	if k := len(h.free); k > 0 {
		id := h.free[k-1]
		h.free = h.free[:k-1]
		slot.queued = h.slots[id].queued
		h.slots[id] = slot
		return id
	}
	h.slots = append(h.slots, slot)
	return link.StreamID(len(h.slots) - 1)
}

func (h *StreamHost) release(id link.StreamID) {
	h.slots[id] = streamSlot{queued: h.slots[id].queued}
	h.free = append(h.free, id)
}

// streamEvent is a StreamHost as the handler of what happens to its streams.
type streamEvent StreamHost

func readableEvent(id link.StreamID) uint64 { return uint64(id) << 1 }
func writableEvent(id link.StreamID) uint64 { return uint64(id)<<1 | 1 }

// HandleEvent notes what happened. The number may be another's by now, who is
// then named for nothing.
func (e *streamEvent) HandleEvent(now mono.Time, arg uint64) {
	h := (*StreamHost)(e)
	writable := arg&1 != 0
	h.note(link.StreamID(arg>>1), !writable, writable)
	if !h.port.frozen {
		h.hook.call(now)
	}
}

func (h *StreamHost) note(id link.StreamID, readable, writable bool) {
	slot := &h.slots[id]
	slot.readable = slot.readable || readable
	slot.writable = slot.writable || writable
	if !slot.queued {
		slot.queued = true
		h.queue.push(id)
	}
}

func (h *StreamHost) thaw() {
	for id := range h.slots[1:] {
		h.note(link.StreamID(id+1), true, true)
	}
	if w := h.port.net.w; h.hook.h != nil {
		w.At(w.now, h.hook.h, h.hook.arg)
	}
}

// Ready implements link.StreamNet.
func (h *StreamHost) Ready(ready []link.StreamReady) int {
	if h.port.frozen {
		return 0
	}
	for _, id := range h.named { // a Read gives no more than a segment
		if h.slots[id].unread() {
			h.note(id, true, false)
		}
	}
	h.named = h.named[:0]
	n := 0
	for n < len(ready) && h.queue.len() > 0 {
		id := h.queue.pop()
		slot := &h.slots[id]
		slot.queued = false
		if slot.stream == nil && slot.listener == nil {
			continue // closed meanwhile
		}
		ready[n] = link.StreamReady{ID: id, Readable: slot.readable, Writable: slot.writable}
		slot.readable, slot.writable = false, false
		h.named = append(h.named, id)
		n++
	}
	return n
}

// unread reports whether there is more to read, or to accept.
func (s *streamSlot) unread() bool {
	if s.listener != nil {
		return s.listener.waiting.len() > 0
	}
	return s.stream != nil && (s.stream.in.len() > 0 || (s.stream.eof || s.stream.err != nil) && !s.stream.told)
}

// Close implements link.StreamNet.
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
			slot.stream.leaveHost()
		case slot.stream != nil:
			_ = slot.stream.Abort(h.port.net.w.now)
		}
	}
	return nil
}

// hostListener is a Listener whose streams are of a host.
type hostListener struct {
	*Listener
	host *StreamHost
	id   link.StreamID
}

// ID implements link.StreamListener.
func (l *hostListener) ID() link.StreamID { return l.id }

// Accept implements link.StreamListener.
func (l *hostListener) Accept(mono.Time) (link.StreamLink, error) {
	if l.host.port.frozen && !l.closed {
		return nil, nil
	}
	s, err := l.Listener.Accept()
	if s == nil {
		return nil, err
	}
	l.host.adopt(s)
	if s.in.len() > 0 || s.eof || s.err != nil {
		l.host.note(s.id, true, false) // it has happened while nobody had accepted it
	}
	return s, nil
}

// Close implements link.StreamListener.
func (l *hostListener) Close() error {
	if !l.closed {
		l.host.release(l.id)
	}
	return l.Listener.Close()
}
