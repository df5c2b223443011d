package ethernet

import (
	"bufio"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/fabrictest/fabrictest/netns/uswitch"
)

// captureBuffer is what a Capture gathers before it writes.
const captureBuffer = 256 << 10

// CaptureOptions are those of a Capture.
type CaptureOptions struct {
	// Epoch is the date of the switch's time 0; if zero, that of Unix.
	Epoch time.Time
	// Comment is kept in the file, for the command that replays it, say.
	Comment string
	// SnapLen is how many bytes of a frame are kept; 0 keeps all. The file still
	// says how long each frame was.
	SnapLen int
	// OnError, if not nil, is told once, from the goroutine of a switch, why the
	// capture has ended early.
	OnError func(error)
}

// Capture is a pcapng file of frames being written, with nanoseconds. Each Tap is
// one of its interfaces.
//
// A frame is there once, as it came to the Path behind the Tap and when it did. If
// something happened to it other than a delay, a comment on it says what, and a
// frame that leaves changed is there a second time, right behind, as it left. So
// the file reads as one conversation; frame.comment in Wireshark's filter finds
// what was done to it.
//
// A capture that fails (a full disk) does not disturb the traffic: writing stops,
// OnError is told, and Close says why.
type Capture struct {
	mu    sync.Mutex
	out   *bufio.Writer
	opts  CaptureOptions
	ng    *pcapgo.NgWriter // nil until there is an interface
	count uint64
	err   error
}

// NewCapture starts a file on w. Nothing is complete in w until Close.
func NewCapture(w io.Writer, opts CaptureOptions) *Capture {
	if opts.Epoch.IsZero() {
		opts.Epoch = time.Unix(0, 0)
	}
	opts.SnapLen = max(0, opts.SnapLen)
	return &Capture{out: bufio.NewWriterSize(w, captureBuffer), opts: opts}
}

// addInterface adds one to the file. The caller holds the lock.
func (c *Capture) addInterface(name string) (id int, err error) {
	intf := pcapgo.NgInterface{Name: name, LinkType: layers.LinkTypeEthernet, SnapLength: uint32(c.opts.SnapLen)}
	if c.ng != nil {
		return c.ng.AddInterface(intf)
	}
	info := pcapgo.NgSectionInfo{Application: "fabrictest", Comment: c.opts.Comment}
	c.ng, err = pcapgo.NewNgWriterInterface(c.out, intf, pcapgo.NgWriterOptions{SectionInfo: info})
	return 0, err
}

// write adds a frame whose checksums are complete.
func (c *Capture) write(id int, now time.Duration, b []byte, comment string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	kept := b
	if c.opts.SnapLen > 0 {
		kept = b[:min(len(b), c.opts.SnapLen)]
	}
	var opts pcapgo.NgPacketOptions
	if comment != "" {
		opts.Comments = []string{comment}
	}
	c.keep(c.ng.WritePacketWithOptions(gopacket.CaptureInfo{
		Timestamp:      c.opts.Epoch.Add(now),
		CaptureLength:  len(kept),
		Length:         len(b),
		InterfaceIndex: id,
	}, kept, opts))
	c.count++
}

// keep remembers the first error, and tells of it.
func (c *Capture) keep(err error) {
	if c.err != nil || err == nil {
		return
	}
	c.err = fmt.Errorf("capture, after %d frames: %w", c.count, err)
	if c.opts.OnError != nil {
		c.opts.OnError(c.err)
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
// close the writer underneath. Taps pass frames on afterwards as before, but no
// longer to the file.
func (c *Capture) Close() error {
	c.mu.Lock()
	if c.ng == nil { // a file without any interface is no file to some readers
		_, err := c.addInterface("none")
		c.keep(err)
	}
	c.mu.Unlock()
	err := c.Flush()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = errCaptureClosed
	}
	return err
}

var errCaptureClosed = fmt.Errorf("capture: %w", io.ErrClosedPipe)

// Tap adds an interface to the file and returns next with everything that comes to
// it written there; next nil passes everything.
func (c *Capture) Tap(name string, next uswitch.Path) *Tap {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &Tap{capture: c, next: orTransparent(next)}
	if e, ok := next.(explainer); ok {
		e.explaining()
	}
	t.spy = t.observe
	if c.err == nil {
		var err error
		t.id, err = c.addInterface(name)
		c.keep(err)
	}
	return t
}
