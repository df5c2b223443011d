package ethernet

import (
	"time"
	"unsafe"

	"github.com/fabrictest/fabrictest/emu/link/pcaplink"
	"github.com/fabrictest/fabrictest/netns/uswitch"
)

// Tap is a FrameHandler that writes the frames of the next handler to a
// Capture.
type Tap struct {
	capture     *Capture
	id          int
	next        uswitch.FrameHandler
	observeFunc uswitch.Emit // t.observe, allocated once

	frame   uswitch.Frame // current; empty in HandleTimer
	emit    uswitch.Emit
	passed  int           // frames emitted
	delay   time.Duration // of the last frame
	changed []uswitch.Frame
	delays  []time.Duration // of changed
	arena   []byte          // bytes of changed
	scratch []byte
}

var _ uswitch.FrameHandler = (*Tap)(nil)

// Apply implements uswitch.FrameHandler.
func (t *Tap) Apply(now time.Duration, f uswitch.Frame, emit uswitch.Emit) {
	t.begin(f, emit)
	t.next.Apply(now, f, t.observeFunc)
	why := explanation(t.next)
	if t.passed == 0 && why == "" {
		why = "not passed on"
	}
	comment := ""
	if why != "" {
		comment = "fabrictest: " + why
		if t.delay > 0 {
			comment += ", leaves after " + t.delay.String()
		}
		if len(t.changed) > 0 {
			comment += " (as it left: next frame)"
		}
	}
	t.write(now, f, comment)
	t.writeChanged(now, "as it left")
	t.frame, t.emit = uswitch.Frame{}, nil
}

// NextTimer implements uswitch.FrameHandler.
func (t *Tap) NextTimer() time.Duration { return t.next.NextTimer() }

// HandleTimer implements uswitch.FrameHandler.
func (t *Tap) HandleTimer(now time.Duration, emit uswitch.Emit) {
	t.begin(uswitch.Frame{}, emit)
	t.next.HandleTimer(now, t.observeFunc)
	t.writeChanged(now, "held back until now")
	t.emit = nil
}

func (t *Tap) begin(f uswitch.Frame, emit uswitch.Emit) {
	t.frame, t.emit, t.passed, t.delay = f, emit, 0, 0
	t.changed, t.delays, t.arena = t.changed[:0], t.delays[:0], t.arena[:0]
}

// observe emits a frame and records it if it differs from the received one.
func (t *Tap) observe(after time.Duration, f uswitch.Frame) {
	t.passed++
	t.delay = after
	if len(f.Bytes) != len(t.frame.Bytes) || unsafe.SliceData(f.Bytes) != unsafe.SliceData(t.frame.Bytes) {
		start := len(t.arena)
		t.arena = append(t.arena, f.Bytes...) // earlier slices stay valid if it is reallocated
		t.changed = append(t.changed, uswitch.Frame{Bytes: t.arena[start:len(t.arena):len(t.arena)], ChecksumPartial: f.ChecksumPartial})
		t.delays = append(t.delays, after)
	}
	t.emit(after, f)
}

// writeChanged writes the changed frames to the capture; what begins their comments.
func (t *Tap) writeChanged(now time.Duration, what string) {
	for i, f := range t.changed {
		comment := "fabrictest: " + what
		if t.delays[i] > 0 {
			comment += ", leaves after " + t.delays[i].String()
		}
		t.write(now, f, comment)
	}
}

// write writes a frame to the capture, with its checksum completed.
func (t *Tap) write(now time.Duration, f uswitch.Frame, comment string) {
	b := f.Bytes
	var h headers
	if f.ChecksumPartial && h.parse(b) {
		t.scratch = append(t.scratch[:0], b...)
		b = t.scratch
		if at, ok := h.checksumAt(); ok {
			b[at], b[at+1] = 0xff, 0xff // not 0, which means no checksum
			h.setChecksum(b, false)
		}
	}
	t.capture.file.Write(pcaplink.Packet{Interface: t.id, At: now, Bytes: b, Comment: comment})
}
