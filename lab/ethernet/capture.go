package ethernet

import (
	"io"
	"time"

	"github.com/gopacket/gopacket/layers"

	"github.com/fabrictest/fabrictest/emu/link/pcaplink"
	"github.com/fabrictest/fabrictest/netns/uswitch"
)

// captureBuffer is the size of the write buffer.
const captureBuffer = 256 << 10

// CaptureOptions configure a Capture.
type CaptureOptions struct {
	// Epoch is the date of switch time 0; the default is the Unix epoch.
	Epoch time.Time
	// Comment is stored in the file, such as the command that replays it.
	Comment string
	// MaxBytes limits the file size; 0 means unlimited. Further frames are
	// omitted, and the end of the file says how many.
	MaxBytes int64
	// OnError, if not nil, is called once, from the goroutine of a switch, if
	// the capture ends early; OnLimit if MaxBytes is reached.
	OnError func(error)
	OnLimit func()
}

// Capture writes frames to a pcapng file with nanosecond timestamps. Each Tap
// is one of its interfaces.
//
// Each frame is written once, as it arrived at the handler behind the Tap. If
// it was impaired other than by a delay, its comment says how, and a changed
// frame is written a second time, right after, as it left. frame.comment in
// Wireshark's filter finds impaired frames.
//
// A capture that fails (a full disk) does not affect the traffic: writing
// stops, OnError is called, and Close returns the error.
type Capture struct{ file *pcaplink.File }

// NewCapture starts a file on w. The file is complete after Close.
func NewCapture(w io.Writer, opts CaptureOptions) *Capture {
	return &Capture{pcaplink.NewFile(w, pcaplink.FileOptions{
		LinkType: layers.LinkTypeEthernet, Epoch: opts.Epoch, Comment: opts.Comment,
		MaxBytes: opts.MaxBytes, BufferBytes: captureBuffer, OnError: opts.OnError, OnLimit: opts.OnLimit,
	})}
}

// Flush writes all buffered frames to the file.
func (c *Capture) Flush() error { return c.file.Flush() }

// Close completes the file and returns the first error. It does not close the
// writer. Taps then forward frames without writing them.
func (c *Capture) Close() error { return c.file.Close() }

// Tap adds an interface to the file and returns a handler that writes frames
// there and passes them to next; a nil next forwards them unchanged.
func (c *Capture) Tap(name string, next uswitch.FrameHandler) *Tap {
	t := &Tap{capture: c, next: orPassThrough(next), id: c.file.AddInterface(name)}
	if e, ok := next.(explainer); ok {
		e.enableExplanation()
	}
	t.observeFunc = t.observe
	return t
}
