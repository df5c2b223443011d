package pcaplink

import (
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// Wrap returns a link that captures the traffic of l as interface name: the datagrams that
// Send took and Recv returned, at the time of the call. The result is a link.GroupLink or
// a link.Waiter if l is.
func (c *Capture) Wrap(name string, l link.PacketLink) link.PacketLink {
	t := &capturedLink{PacketLink: l, intf: c.AddInterface(name), socketHeaders: !l.Features().SetsIPID}
	g, isGroup := l.(link.GroupLink)
	w, isWaiter := l.(link.Waiter)
	switch {
	case isGroup && isWaiter:
		return &struct {
			*capturedLink
			groupMethods
			waitMethods
		}{t, g, w}
	case isGroup:
		return &struct {
			*capturedLink
			groupMethods
		}{t, g}
	case isWaiter:
		return &struct {
			*capturedLink
			waitMethods
		}{t, w}
	}
	return t
}

// groupMethods are the methods that link.GroupLink adds.
type groupMethods interface {
	Join(group netip.Addr) error
	Leave(group netip.Addr) error
}

// waitMethods are the methods that link.Waiter adds.
type waitMethods interface {
	WaitReadable(d time.Duration) error
	Wake()
}

// capturedLink is a link whose traffic is captured.
type capturedLink struct {
	link.PacketLink
	intf          *Interface
	socketHeaders bool // a socket makes the headers
}

// Send implements link.PacketLink.
func (t *capturedLink) Send(now mono.Time, ds []link.Datagram) (int, error) {
	n, err := t.PacketLink.Send(now, ds)
	for i := range ds[:n] {
		d := ds[i]
		if t.socketHeaders {
			d.Variants = 0
		}
		t.intf.Write(now, Outbound, &d)
	}
	return n, err
}

// Recv implements link.PacketLink.
func (t *capturedLink) Recv(now mono.Time, ds []link.Datagram) (int, error) {
	n, err := t.PacketLink.Recv(now, ds)
	for i := range ds[:n] {
		d := ds[i]
		t.intf.fillIPID(&d)
		t.intf.Write(now, Inbound, &d)
	}
	return n, err
}

// fillIPID sets the identification of a datagram whose link does not see it.
func (i *Interface) fillIPID(d *link.Datagram) {
	find := i.capture.findIPID
	if find == nil || d.IPID < link.IPIDUnknown || !d.Is4() {
		return
	}
	if id, ok := find(d); ok {
		d.IPID = uint32(id)
	}
}
