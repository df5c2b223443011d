package ethernet

import (
	"io"
	"time"

	"github.com/gopacket/gopacket/layers"

	"github.com/fabrictest/fabrictest/emu/link/pcaplink/pcapng"
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
	// MaxBytes bounds the size of the file; 0 does not. Frames beyond it are left
	// out, and the file says at its end how many.
	MaxBytes int64
	// OnError, if not nil, is told once, from the goroutine of a switch, why the
	// capture has ended early; OnCut likewise, that MaxBytes is reached.
	OnError func(error)
	OnCut   func()
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
type Capture struct{ file *pcapng.File }

// NewCapture starts a file on w. Nothing is complete in w until Close.
func NewCapture(w io.Writer, opts CaptureOptions) *Capture {
	return &Capture{pcapng.New(w, pcapng.Options{
		LinkType: layers.LinkTypeEthernet, Epoch: opts.Epoch, Comment: opts.Comment,
		MaxBytes: opts.MaxBytes, BufferBytes: captureBuffer, OnError: opts.OnError, OnCut: opts.OnCut,
	})}
}

// Flush brings everything written so far to the file.
func (c *Capture) Flush() error { return c.file.Flush() }

// Close completes the file and returns the first error there was. It does not
// close the writer underneath. Taps pass frames on afterwards as before, but no
// longer to the file.
func (c *Capture) Close() error { return c.file.Close() }

// Tap adds an interface to the file and returns next with everything that comes to
// it written there; next nil passes everything.
func (c *Capture) Tap(name string, next uswitch.FrameHandler) *Tap {
	t := &Tap{capture: c, next: orTransparent(next), id: c.file.Interface(name)}
	if e, ok := next.(explainer); ok {
		e.explaining()
	}
	t.spy = t.observe
	return t
}
