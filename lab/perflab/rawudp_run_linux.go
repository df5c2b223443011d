package perflab

import (
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
	// receive hands each segment that has arrived to r.
	receive(r *segmentReader) (segments int, err error)
}

// runStream runs sender and receiver, each on its CPU of cpus, counted from 1; 0 is any. Both
// busy-poll. The result is what the receiver has counted.
func runStream(cfg RawStreamConfig, cpus [2]int, tx batchSender, rx batchReceiver) (RawUDPStreamResult, error) {
	if err := waitForPath(cfg, tx, rx); err != nil {
		return RawUDPStreamResult{}, err
	}
	var f flow
	writer, reader := newSegmentWriter(cfg), newSegmentReader(cfg)
	var start, last time.Time
	receiving := make(chan struct{})
	err := runOnCPUs(cpus, func() (err error) {
		<-receiving
		start = time.Now()
		if err = sendStream(writer, &f, tx, start); err != nil {
			f.failed.Store(true)
		}
		return err
	}, func() (err error) {
		close(receiving)
		if last, err = receiveStream(reader, &f, rx); err != nil {
			f.failed.Store(true)
		}
		return err
	})
	result := reader.result
	result.Sent = f.sent.Load()
	result.Elapsed = last.Sub(start)
	return result, err
}

// waitForPath sends probes until one arrives. The first datagrams between two hosts wait
// for neighbour discovery in a short queue.
func waitForPath(cfg RawStreamConfig, tx batchSender, rx batchReceiver) error {
	writer, reader := newSegmentWriter(cfg), newSegmentReader(cfg)
	writer.seq = firstProbeSeq
	const probes, replyTime = 50, 30 * time.Millisecond
	for range probes {
		for _, seg := range tx.buffers() {
			writer.write(seg)
		}
		if err := flushAll(tx); err != nil {
			return err
		}
		for start := time.Now(); time.Since(start) < replyTime; {
			if n, err := rx.receive(reader); n > 0 || err != nil {
				return err
			}
			yield()
		}
	}
	return fmt.Errorf("stream: none of %d probes arrived: check the receiver's address and the path", probes)
}

// sendStream sends batches until cfg.Duration has passed, at least one.
func sendStream(w *segmentWriter, f *flow, tx batchSender, start time.Time) error {
	defer f.finished.Store(true)
	bufs := tx.buffers()
	window := uint64(windowBytes / w.cfg.Bytes)
	var base uint64
	for {
		base = f.waitForWindow(w.seq+uint64(len(bufs)), base, window+1)
		for _, seg := range bufs {
			w.write(seg)
		}
		if err := flushAll(tx); err != nil {
			return err
		}
		f.sent.Store(w.seq)
		if time.Since(start) >= w.cfg.Duration || f.failed.Load() {
			return nil
		}
	}
}

// flushAll sends the batch of tx, and spins while it cannot be sent.
func flushAll(tx batchSender) error {
	for {
		if done, err := tx.flush(); done || err != nil {
			return err
		}
		yield()
	}
}

// receiveStream receives until the stream ends, and returns the time of the last arrival.
func receiveStream(r *segmentReader, f *flow, rx batchReceiver) (time.Time, error) {
	last := time.Now()
	var idle idleTimer
	for {
		n, err := rx.receive(r)
		if err != nil {
			return last, err
		}
		if n > 0 {
			last = time.Now()
			f.received.Store(r.next)
			idle = idleTimer{}
		} else if idle.streamEnded(f, r.next) {
			return last, nil
		}
	}
}
