package uswitch

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"
)

func TestDelayQueueOrdersByTime(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	h := delayQueue{maxFrames: 1000, maxBytes: 1 << 30}
	type want struct {
		due time.Duration
		seq uint64
	}
	var model []want
	now, taken := time.Duration(0), 0
	for i := range 20_000 {
		due := now + time.Duration(rng.IntN(50))
		b := bytes.Repeat([]byte{byte(i)}, 14+rng.IntN(3000))
		if h.put(due, delayedFrame{port: int32(i)}, b) {
			model = append(model, want{due, uint64(i)})
		}
		now += time.Duration(rng.IntN(3))
		for {
			f, ok := h.take(now)
			if !ok {
				break
			}
			best := 0
			for j, m := range model {
				if m.due < model[best].due || (m.due == model[best].due && m.seq < model[best].seq) {
					best = j
				}
			}
			if model[best].seq != uint64(f.port) || model[best].due > now || f.bytes[0] != byte(f.port) {
				t.Fatalf("at %v take returned frame %d, want %d, due %v", now, f.port, model[best].seq, model[best].due)
			}
			model = append(model[:best], model[best+1:]...)
			taken++
		}
		for _, m := range model {
			if m.due <= now {
				t.Fatalf("at %v take did not return a frame due at %v", now, m.due)
			}
		}
		h.releaseLent()
	}
	if taken < 19_000 {
		t.Errorf("take returned only %d of 20000", taken)
	}
}

func TestDelayQueueIsBounded(t *testing.T) {
	h := delayQueue{maxFrames: 10, maxBytes: 100_000}
	frame := make([]byte, 60)
	for i := range 20 {
		if got, want := h.put(1, delayedFrame{}, frame), i < 10; got != want {
			t.Fatalf("frame %d queued: %v", i, got)
		}
	}
	h = delayQueue{maxFrames: 1000, maxBytes: 100_000}
	n := 0
	for h.put(time.Duration(n), delayedFrame{}, make([]byte, 9000)) {
		n++
	}
	if n != 100_000/9344 || h.bytes > h.maxBytes {
		t.Errorf("%d frames in %d bytes", n, h.bytes)
	}
	if h.put(1, delayedFrame{}, make([]byte, 1<<17)) {
		t.Error("a frame longer than the maximum was queued")
	}
	// Free buffers of one size must not block those of another forever.
	for {
		if _, ok := h.take(Never); !ok {
			break
		}
	}
	h.releaseLent()
	for range 300 {
		if !h.put(1, delayedFrame{}, frame) {
			t.Fatal("no room in an empty queue")
		}
	}
	if h.bytes != 300*256 || h.allocated > h.maxBytes {
		t.Errorf("%d bytes held, %d allocated of %d", h.bytes, h.allocated, h.maxBytes)
	}
}

func TestDelayQueueDoesNotAllocateInSteadyState(t *testing.T) {
	h := delayQueue{maxFrames: 1000, maxBytes: 1 << 20}
	frame := make([]byte, 1500)
	now := time.Duration(0)
	run := func() {
		for i := range 16 {
			h.put(now+time.Duration(i), delayedFrame{}, frame)
		}
		now += 20
		for {
			if _, ok := h.take(now); !ok {
				break
			}
		}
		h.releaseLent()
	}
	run()
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
