package pcaplink

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/gopacket/gopacket"
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
	// SnapLen is how many bytes of a packet are kept, from the first header of
	// its framing on; 0 keeps all. The file still says how long each packet was.
	SnapLen int
}

// Capture is a pcapng file being written.
type Capture struct {
	mu    sync.Mutex
	out   io.Writer
	opts  Options
	ng    *pcapgo.NgWriter // nil until there is an interface
	frame []byte
	count uint64
	err   error
}

// NewCapture starts a file on w. Nothing is complete in w until Close.
func NewCapture(w io.Writer, opts Options) *Capture {
	if opts.Epoch.IsZero() {
		opts.Epoch = time.Unix(0, 0)
	}
	opts.SnapLen = max(0, opts.SnapLen)
	return &Capture{out: w, opts: opts}
}

// Interface is one interface of a file: the place of one link.
type Interface struct {
	capture *Capture
	id      int
}

// Interface adds an interface to the file.
func (c *Capture) Interface(name string) *Interface {
	c.mu.Lock()
	defer c.mu.Unlock()
	id, err := c.addInterface(name)
	c.keep(err)
	return &Interface{capture: c, id: id}
}

func (c *Capture) addInterface(name string) (id int, err error) {
	intf := pcapgo.NgInterface{Name: name, LinkType: c.opts.Framing.linkType(), SnapLength: uint32(c.opts.SnapLen)}
	if c.ng != nil {
		return c.ng.AddInterface(intf)
	}
	// Neither machine nor system is named: the file depends on the run alone.
	info := pcapgo.NgSectionInfo{Application: "fabrictest", Comment: c.opts.Comment}
	c.ng, err = pcapgo.NewNgWriterInterface(c.out, intf, pcapgo.NgWriterOptions{SectionInfo: info})
	return 0, err
}

// Flags of a packet, made once.
var flags = [...]pcapgo.NgEpbFlags{
	Outbound: {Direction: pcapgo.NgEpbFlagDirectionOutbound},
	Inbound:  {Direction: pcapgo.NgEpbFlagDirectionInbound},
}

// Write adds a packet that passed the interface at now.
func (i *Interface) Write(now mono.Time, dir Direction, d *link.Datagram) {
	c := i.capture
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	if d.IPBytes() > maxIPBytes {
		c.keep(fmt.Errorf("a datagram of %d bytes does not fit in an IP packet", len(d.Payload)))
		return
	}
	c.frame = c.opts.Framing.appendFrame(c.frame[:0], d)
	kept := c.frame
	if c.opts.SnapLen > 0 {
		kept = kept[:min(len(kept), c.opts.SnapLen)]
	}
	c.keep(c.ng.WritePacketWithOptions(gopacket.CaptureInfo{
		Timestamp:      c.opts.Epoch.Add(time.Duration(now)),
		CaptureLength:  len(kept),
		Length:         len(c.frame),
		InterfaceIndex: i.id,
	}, kept, pcapgo.NgPacketOptions{Flags: &flags[dir]}))
	c.count++
}

// keep remembers the first error.
func (c *Capture) keep(err error) {
	if c.err == nil && err != nil {
		c.err = fmt.Errorf("capture, after %d packets: %w", c.count, err)
	}
}

// Flush brings everything written so far to the file.
func (c *Capture) Flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ng != nil && c.err == nil {
		c.keep(c.ng.Flush())
	}
	return c.err
}

// Close completes the file and returns the first error there was. It does not
// close the writer underneath.
func (c *Capture) Close() error {
	c.mu.Lock()
	if c.ng == nil { // a file without any interface is no file to some readers
		_, err := c.addInterface("none")
		c.keep(err)
	}
	c.mu.Unlock()
	return c.Flush()
}
