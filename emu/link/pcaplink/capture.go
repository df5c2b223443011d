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

// Framing is what a packet in the file starts with.
type Framing uint8

// The framings.
const (
	RawIP    Framing = iota // the IP header
	Ethernet                // an Ethernet header with made-up addresses, for tools that insist
)

func (f Framing) linkType() layers.LinkType {
	if f == Ethernet {
		return layers.LinkTypeEthernet
	}
	return layers.LinkTypeRaw
}

// Direction is that of a packet, as its interface sees it.
type Direction uint8

// The directions.
const (
	Outbound Direction = iota
	Inbound
)

// Options are those of a Capture.
type Options struct {
	Framing Framing
	// Epoch is the date at the driver's time 0; if zero, that of Unix.
	Epoch time.Time
	// Comment is kept in the file, for the command that replays it, say.
	Comment string
	// FindID, if not nil, finds the IPv4 identification of a received datagram that
	// its link cannot see. Where it is not found the file says 0.
	FindIPID func(*link.Datagram) (id uint16, ok bool)
}

// Capture is a pcapng file being written.
type Capture struct {
	file     *File
	framing  Framing
	findIPID func(*link.Datagram) (uint16, bool)
	mu       sync.Mutex
	frame    []byte
}

// NewCapture starts a file on w. Nothing is complete in w until Close.
func NewCapture(w io.Writer, opts Options) *Capture {
	return &Capture{framing: opts.Framing, findIPID: opts.FindIPID, file: NewFile(w, FileOptions{
		LinkType: opts.Framing.linkType(), Epoch: opts.Epoch, Comment: opts.Comment,
	})}
}

// Interface is one interface of a file: the place of one link.
type Interface struct {
	capture *Capture
	id      int
}

// Interface adds an interface to the file.
func (c *Capture) AddInterface(name string) *Interface {
	return &Interface{capture: c, id: c.file.AddInterface(name)}
}

// Flags of a packet, made once.
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

// Flush brings everything written so far to the file.
func (c *Capture) Flush() error { return c.file.Flush() }

// Close completes the file and returns the first error there was. It does not
// close the writer underneath.
func (c *Capture) Close() error { return c.file.Close() }
