// Package pcaplink captures the traffic of links in pcapng files: [Capture.Wrap] wraps a
// link.PacketLink, [Capture.WrapStreams] a link.StreamNet. A [Capture] holds many links,
// each as an interface of the file.
//
// Links carry datagrams, not packets. The IP and UDP headers in the file are made from the fields
// of the datagram: don't-fragment set, the UDP checksum filled in, the identification as in the
// datagram or from [Options.FindIPID]. Streams carry bytes, not segments; WrapStreams says how
// segments are made from them. Timestamps are the driver's time in nanoseconds since
// [Options.Epoch]; in a simulated world, where time is virtual, the same run writes the same file.
//
// A [File] is the pcapng file itself, which switches (package impair/ethernet) use too.
// [Trim] repairs the file of a writer that was killed. Package capture reads the files.
//
// An error of the file, such as a full disk, does not affect the traffic: the capture
// stops, and [Capture.Close] returns the error. Goroutines may share a Capture or a File.
package pcaplink

import (
	"fmt"
	"io"
	"net/netip"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/pcapng"
)

// Framing is the first header of the packets in a file.
type Framing uint8

// The framings.
const (
	RawIP    Framing = iota // the IP header
	Ethernet                // an Ethernet header with made-up addresses, for tools that need one
)

// Direction is the direction of a packet at its interface.
type Direction uint8

// The directions.
const (
	Outbound Direction = iota
	Inbound
)

// Options are those of a Capture.
type Options struct {
	Framing Framing
	// Epoch is the date at the driver's time 0; the Unix epoch if zero.
	Epoch time.Time
	// Comment is the comment of the section, for instance the command that replays the run.
	Comment string
	// MaxBytes and OnLimit are those of FileOptions.
	MaxBytes int64
	OnLimit  func()
	// FindIPID, if not nil, finds the IPv4 identification of a received datagram if the link
	// cannot see it. The file has 0 if it is not found.
	FindIPID func(*link.Datagram) (id uint16, ok bool)
}

// Capture writes the traffic of links to a pcapng file.
type Capture struct {
	file     *File
	framing  Framing
	findIPID func(*link.Datagram) (uint16, bool)
	mu       sync.Mutex
	frame    []byte // buffer for the packet being written
}

// NewCapture returns a Capture that writes a pcapng file to w. The file is complete after Close.
func NewCapture(w io.Writer, opts Options) *Capture {
	linkTypes := [...]pcapng.LinkType{RawIP: pcapng.RawIP, Ethernet: pcapng.Ethernet}
	return &Capture{framing: opts.Framing, findIPID: opts.FindIPID, file: NewFile(w, FileOptions{
		LinkType: linkTypes[opts.Framing], Epoch: opts.Epoch, Comment: opts.Comment, MaxBytes: opts.MaxBytes, OnLimit: opts.OnLimit,
	})}
}

// Interface is an interface of a capture, one for each link.
type Interface struct {
	capture *Capture
	id      int
}

// AddInterface adds an interface called name to the file.
func (c *Capture) AddInterface(name string) *Interface {
	return &Interface{capture: c, id: c.file.AddInterface(name)}
}

// directions are the directions in the file.
var directions = [...]pcapng.Direction{Outbound: pcapng.Outbound, Inbound: pcapng.Inbound}

// Write adds the packet of a datagram that passed the interface at now.
func (i *Interface) Write(now mono.Time, dir Direction, d *link.Datagram) {
	i.WriteWithComment(now, dir, d, "")
}

// WriteWithComment adds a datagram that passed the interface at now, with a comment on its packet.
func (i *Interface) WriteWithComment(now mono.Time, dir Direction, d *link.Datagram, comment string) {
	c := i.capture
	if d.IPBytes() > maxIPBytes {
		c.file.Fail(fmt.Errorf("a datagram of %d bytes does not fit in an IP packet", len(d.Payload)))
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frame = c.framing.appendFrame(c.frame[:0], d)
	c.file.Write(Packet{Interface: i.id, At: time.Duration(now), Bytes: c.frame, Comment: comment, Direction: directions[dir]})
}

// Flush writes buffered packets to the underlying writer.
func (c *Capture) Flush() error { return c.file.Flush() }

// Close completes the file and returns the first error. It does not close the underlying writer.
func (c *Capture) Close() error { return c.file.Close() }

// Wrap returns a link that passes the traffic of l, and captures it at a new interface called name:
// the datagrams that Send took and Recv returned, at the time of the call. The result is a
// link.GroupLink or a link.Waiter if l is.
func (c *Capture) Wrap(name string, l link.PacketLink) link.PacketLink {
	captured := &capturedLink{PacketLink: l, intf: c.AddInterface(name)}
	g, isGroup := l.(link.GroupLink)
	w, isWaiter := l.(link.Waiter)
	switch {
	case isGroup && isWaiter:
		return &struct {
			*capturedLink
			groupMethods
			waitMethods
		}{captured, g, w}
	case isGroup:
		return &struct {
			*capturedLink
			groupMethods
		}{captured, g}
	case isWaiter:
		return &struct {
			*capturedLink
			waitMethods
		}{captured, w}
	}
	return captured
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
	intf *Interface
}

// Send implements link.PacketLink, and captures the datagrams that were sent.
func (l *capturedLink) Send(now mono.Time, ds []link.Datagram) (int, error) {
	n, err := l.PacketLink.Send(now, ds)
	for i := range ds[:n] {
		l.intf.Write(now, Outbound, &ds[i])
	}
	return n, err
}

// Recv implements link.PacketLink, and captures the datagrams that were received.
func (l *capturedLink) Recv(now mono.Time, ds []link.Datagram) (int, error) {
	n, err := l.PacketLink.Recv(now, ds)
	for i := range ds[:n] {
		d := ds[i]
		l.intf.fillIPID(&d)
		l.intf.Write(now, Inbound, &d)
	}
	return n, err
}

// fillIPID sets the IPv4 identification of a received datagram to that of Options.FindIPID, if
// there is such a function and the link could not see the identification (IPIDUnknown).
func (i *Interface) fillIPID(d *link.Datagram) {
	find := i.capture.findIPID
	if find == nil || d.IPID < link.IPIDUnknown || !d.Is4() {
		return
	}
	if id, ok := find(d); ok {
		d.IPID = uint32(id)
	}
}
