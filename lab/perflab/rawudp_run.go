package perflab

import (
	"errors"
	"fmt"
	"time"
)

// batchSender sends batches of segments.
type batchSender interface {
	// buffers returns the segments of the next batch, which the caller fills before flush.
	buffers() [][]byte
	// flush sends the batch, or the rest of it, without blocking. It reports whether all of
	// it was sent.
	flush() (done bool, err error)
}

// batchReceiver receives segments without blocking.
type batchReceiver interface {
	receive(o *segmentReader) (segments int, err error)
}

// runStream runs sender and receiver on two goroutines, which busy-poll, and returns what the
// receiver has counted, with the time from the first send to the last arrival.
func runStream(cfg RawUDPStreamConfig, tx batchSender, rx batchReceiver) (RawUDPStreamResult, error) {
	if err := waitForPath(cfg, tx, rx); err != nil {
		return RawUDPStreamResult{}, err
	}
	var f flow
	s, o := newSegmentWriter(cfg), newSegmentReader(cfg)
	type end struct {
		last time.Time
		err  error
	}
	ready, arrived := make(chan struct{}), make(chan end, 1)
	go func() {
		var last time.Time
		err := onCPU(cfg.cpus[1], func() (err error) {
			close(ready)
			last, err = receiveStream(o, &f, rx)
			return err
		})
		if err != nil {
			f.failed.Store(true)
		}
		arrived <- end{last, err}
	}()
	<-ready
	var start time.Time
	sendErr := onCPU(cfg.cpus[0], func() error {
		start = time.Now()
		return sendStream(s, &f, tx, start)
	})
	if sendErr != nil {
		f.failed.Store(true)
	}
	got := <-arrived
	res := o.res
	res.Sent = f.sent.Load()
	res.Elapsed = got.last.Sub(start)
	return res, errors.Join(sendErr, got.err)
}

// waitForPath sends probes until one arrives. The first datagrams between two hosts wait
// for neighbour discovery in a short queue.
func waitForPath(cfg RawUDPStreamConfig, tx batchSender, rx batchReceiver) error {
	s, o := newSegmentWriter(cfg), newSegmentReader(cfg)
	s.seq = probeSeq
	const probes = 50
	for range probes {
		for _, seg := range tx.buffers() {
			s.write(seg)
		}
		for done := false; !done; {
			var err error
			if done, err = tx.flush(); err != nil {
				return err
			}
		}
		for start := time.Now(); time.Since(start) < 30*time.Millisecond; {
			if n, err := rx.receive(o); n > 0 || err != nil {
				return err
			}
			yield()
		}
	}
	return fmt.Errorf("stream: none of %d probes arrived: check the receiver's address and the path", probes)
}

// sendStream sends batches until cfg.Duration has passed, at least one.
func sendStream(s *segmentWriter, f *flow, tx batchSender, start time.Time) error {
	defer f.finished.Store(true)
	bufs := tx.buffers()
	window := uint64(s.cfg.WindowBytes / s.cfg.SegmentBytes)
	var base uint64
	for {
		base = f.waitForWindow(s.seq+uint64(len(bufs)), base, window+1)
		for _, seg := range bufs {
			s.write(seg)
		}
		for {
			done, err := tx.flush()
			if err != nil {
				return err
			}
			if done {
				break
			}
			yield()
		}
		f.sent.Store(s.seq)
		if time.Since(start) >= s.cfg.Duration || f.failed.Load() {
			return nil
		}
	}
}

// receiveStream receives until the stream ends, and returns the time of the last arrival.
func receiveStream(o *segmentReader, f *flow, rx batchReceiver) (time.Time, error) {
	last := time.Now()
	var quiet idleTimer
	for {
		n, err := rx.receive(o)
		if err != nil {
			return last, err
		}
		if n > 0 {
			last = time.Now()
			f.received.Store(o.next)
			quiet.reset()
		} else if quiet.streamEnded(f, o.next) {
			return last, nil
		}
	}
}
