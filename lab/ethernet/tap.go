package ethernet

import (
	"io"
	"time"
	"unsafe"

	"github.com/fabrictest/fabrictest/emu/link/pcaplink"
	"github.com/fabrictest/fabrictest/internal/pcapng"
	"github.com/fabrictest/fabrictest/netns/uswitch"
)

// Tap is a FrameHandler that writes the frames of the next handler to a Capture.
type Tap struct {
	capture     *Capture
	id          int
	next        uswitch.FrameHandler
	observeFunc uswitch.Emit // t.observe, allocated once

	frame   uswitch.Frame // current; empty in HandleTimer
	emit    uswitch.Emit
	emitted int           // number of frames
	delay   time.Duration // of the last frame
	changed []uswitch.Frame
	delays  []time.Duration // of changed
	arena   []byte          // bytes of changed
	scratch []byte
}

// Apply implements uswitch.FrameHandler. It passes the frame to the next handler and captures it,
// with a comment if the handler did more than delay it, and then any changed frames.
func (t *Tap) Apply(now time.Duration, f uswitch.Frame, emit uswitch.Emit) {
	t.begin(f, emit)
	t.next.Apply(now, f, t.observeFunc)
	why := explanation(t.next)
	if t.emitted == 0 && why == "" {
		why = "not passed on"
	}
	comment := ""
	if why != "" {
		comment = "fabrictest: " + why
		if t.delay > 0 {
			comment += ", leaves after " + t.delay.String()
		}
		if len(t.changed) > 0 {
			comment += " (the next frame of the capture shows it as it left)"
		}
	}
	t.write(now, f, comment)
	t.writeChanged(now, "as it left")
	t.frame, t.emit = uswitch.Frame{}, nil
}

// NextTimer implements uswitch.FrameHandler.
func (t *Tap) NextTimer() time.Duration { return t.next.NextTimer() }

// HandleTimer implements uswitch.FrameHandler. It captures the frames that the next handler emits.
// No frame was received: each emitted one counts as changed, and is captured with a comment.
func (t *Tap) HandleTimer(now time.Duration, emit uswitch.Emit) {
	t.begin(uswitch.Frame{}, emit)
	t.next.HandleTimer(now, t.observeFunc)
	t.writeChanged(now, "held back until now")
	t.emit = nil
}

// begin prepares to observe what the next handler emits for a received frame, or at a timer.
func (t *Tap) begin(f uswitch.Frame, emit uswitch.Emit) {
	t.frame, t.emit, t.emitted, t.delay = f, emit, 0, 0
	t.changed, t.delays, t.arena = t.changed[:0], t.delays[:0], t.arena[:0]
}

// observe is called for each frame that the next handler emits. It emits the frame in turn, and
// records it if it is not the received one: handlers never change a frame in place, so that changed
// frames have other memory.
func (t *Tap) observe(after time.Duration, f uswitch.Frame) {
	t.emitted++
	t.delay = after
	if len(f.Bytes) != len(t.frame.Bytes) || unsafe.SliceData(f.Bytes) != unsafe.SliceData(t.frame.Bytes) {
		start := len(t.arena)
		t.arena = append(t.arena, f.Bytes...) // earlier slices stay valid if it is reallocated
		t.changed = append(t.changed, uswitch.Frame{Bytes: t.arena[start:len(t.arena):len(t.arena)], ChecksumPartial: f.ChecksumPartial})
		t.delays = append(t.delays, after)
	}
	t.emit(after, f)
}

// writeChanged writes to the capture the frames that the next handler has changed, added or held
// back, with reason in their comment.
func (t *Tap) writeChanged(now time.Duration, reason string) {
	for i, f := range t.changed {
		comment := "fabrictest: " + reason
		if t.delays[i] > 0 {
			comment += ", leaves after " + t.delays[i].String()
		}
		t.write(now, f, comment)
	}
}

// write writes a frame to the capture. A checksum that was left to the NIC is completed.
func (t *Tap) write(now time.Duration, f uswitch.Frame, comment string) {
	b := f.Bytes
	var h headers
	if f.ChecksumPartial && h.parse(b) {
		t.scratch = append(t.scratch[:0], b...)
		b = t.scratch
		if at, ok := h.checksumAt(); ok {
			const partial = false
			b[at], b[at+1] = 0xff, 0xff // setChecksum would keep a UDP checksum of 0, which means none
			h.setChecksum(b, partial)
		}
	}
	t.capture.Write(pcaplink.Packet{Interface: t.id, At: now, Bytes: b, Comment: comment})
}

// CaptureOptions are those of the pcapng file. NewCapture sets LinkType and BufferBytes.
type CaptureOptions = pcaplink.FileOptions

// Capture writes frames to a pcapng file with nanosecond timestamps. Each Tap
// is one of its interfaces.
//
// Each frame is written once, as it arrived at the handler behind the Tap. If it was impaired other
// than by a delay, its comment says how, and a changed frame is written a second time, right after,
// as it left. frame.comment in Wireshark's filter finds impaired frames.
//
// A capture that fails (a full disk) does not affect the traffic: writing
// stops, OnError is called, and Close returns the error.
type Capture struct{ *pcaplink.File }

// NewCapture starts a capture file on w. The file is complete after Close, which does not close w;
// taps then forward frames without writing them.
func NewCapture(w io.Writer, opts CaptureOptions) *Capture {
	opts.LinkType, opts.BufferBytes = pcapng.Ethernet, 256<<10
	return &Capture{pcaplink.NewFile(w, opts)}
}

// Tap adds an interface to the file. The handler that it returns captures frames and calls next.
func (c *Capture) Tap(name string, next uswitch.FrameHandler) *Tap {
	t := &Tap{capture: c, next: next, id: c.AddInterface(name)}
	t.observeFunc = t.observe
	return t
}
