package pcaplink

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// Framing is the first header of the packets in a file.
type Framing uint8

// The framings.
const (
	RawIP    Framing = iota // the IP header
	Ethernet                // an Ethernet header with made-up addresses, for tools that need one
)

func (f Framing) linkType() layers.LinkType {
	if f == Ethernet {
		return layers.LinkTypeEthernet
	}
	return layers.LinkTypeRaw
}

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
	frame    []byte
}

// NewCapture returns a Capture on w. w is complete after Close.
func NewCapture(w io.Writer, opts Options) *Capture {
	return &Capture{framing: opts.Framing, findIPID: opts.FindIPID, file: NewFile(w, FileOptions{
		LinkType: opts.Framing.linkType(), Epoch: opts.Epoch, Comment: opts.Comment,
	})}
}

// Interface is an interface of a capture, one for each link.
type Interface struct {
	capture *Capture
	id      int
}

// AddInterface adds an interface to the file.
func (c *Capture) AddInterface(name string) *Interface {
	return &Interface{capture: c, id: c.file.AddInterface(name)}
}

// flags are the packet flags by direction.
var flags = [...]pcapgo.NgEpbFlags{
	Outbound: {Direction: pcapgo.NgEpbFlagDirectionOutbound},
	Inbound:  {Direction: pcapgo.NgEpbFlagDirectionInbound},
}

// Write adds a packet that passed the interface at now.
func (i *Interface) Write(now mono.Time, dir Direction, d *link.Datagram) {
	i.WriteWithComment(now, dir, d, "")
}

// WriteWithComment is Write with a comment on the packet.
func (i *Interface) WriteWithComment(now mono.Time, dir Direction, d *link.Datagram, comment string) {
	c := i.capture
	if d.IPBytes() > maxIPBytes {
		c.file.Fail(fmt.Errorf("a datagram of %d bytes does not fit in an IP packet", len(d.Payload)))
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frame = c.framing.appendFrame(c.frame[:0], d)
	c.file.Write(Packet{Interface: i.id, At: time.Duration(now), Bytes: c.frame, Comment: comment, Flags: &flags[dir]})
}

// Flush writes buffered packets to the underlying writer.
func (c *Capture) Flush() error { return c.file.Flush() }

// Close completes the file and returns the first error. It does not close the underlying
// writer.
func (c *Capture) Close() error { return c.file.Close() }
