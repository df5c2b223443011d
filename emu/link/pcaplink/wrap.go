package pcaplink

import (
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// Wrap returns l with everything that passes it written to c, on an interface of
// that name: what Send took, and what Recv gave, each at the time of the call.
// The result is a link.GroupLink and a link.Waiter where l is.
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

type groupMethods interface {
	Join(group netip.Addr) error
	Leave(group netip.Addr) error
}

type waitMethods interface {
	WaitReadable(d time.Duration) error
	Wake()
}

type capturedLink struct {
	link.PacketLink
	intf          *Interface
	socketHeaders bool // the link chooses the identification, and fills in checksums
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

// findID fills in the identification of a datagram whose link did not see it.
func (i *Interface) fillIPID(d *link.Datagram) {
	find := i.capture.findIPID
	if find == nil || d.IPID < link.IPIDUnknown || !d.Is4() {
		return
	}
	if id, ok := find(d); ok {
		d.IPID = uint32(id)
	}
}
