package rawbench

import (
	"errors"
	"fmt"
	"runtime"
	"time"
)

// batchSender puts one batch of segments on the network.
type batchSender interface {
	// buffers are the segments of the next batch, to be filled before flush.
	buffers() [][]byte
	// flush offers the batch, or what is left of it, without blocking and
	// reports whether all of it was taken.
	flush() (done bool, err error)
}

// batchReceiver takes what has arrived, without blocking.
type batchReceiver interface {
	receive(o *opener) (segments int, err error)
}

// runStream drives the two ends, each on a goroutine of its own, and spins:
// a stream at full speed never finds its socket empty for long.
func runStream(cfg StreamConfig, tx batchSender, rx batchReceiver) (StreamResult, error) {
	if err := openWay(cfg, tx, rx); err != nil {
		return StreamResult{}, err
	}
	var f flow
	type received struct {
		o    *opener
		last time.Time
		err  error
	}
	arrived := make(chan received, 1)
	go func() {
		o, last, err := receiveStream(cfg, &f, rx)
		f.failed.Store(f.failed.Load() || err != nil)
		arrived <- received{o, last, err}
	}()
	start := time.Now()
	sendErr := sendStream(cfg, &f, tx, start)
	f.failed.Store(f.failed.Load() || sendErr != nil)
	got := <-arrived
	res := got.o.res
	res.Sent = f.sent.Load()
	res.Elapsed = got.last.Sub(start)
	return res, errors.Join(sendErr, got.err)
}

// openWay sends probes until one arrives: the first datagrams between two hosts
// wait for the neighbour's address, in a queue too short for a stream.
func openWay(cfg StreamConfig, tx batchSender, rx batchReceiver) error {
	s, o := newSealer(cfg), newOpener(cfg)
	s.seq = probe
	for range 100 {
		for _, seg := range tx.buffers() {
			s.seal(seg)
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
			runtime.Gosched()
		}
	}
	return fmt.Errorf("stream: none of 100 probes arrived: is the receiver's address right, and the way up?")
}

func sendStream(cfg StreamConfig, f *flow, tx batchSender, start time.Time) error {
	defer f.finished.Store(true)
	s := newSealer(cfg)
	bufs := tx.buffers()
	window := uint64(cfg.WindowBytes / cfg.SegmentBytes)
	var base uint64
	for time.Since(start) < cfg.Duration && !f.failed.Load() {
		base = f.waitRoom(s.seq+uint64(len(bufs)), base, window+1)
		for _, seg := range bufs {
			s.seal(seg)
		}
		for {
			done, err := tx.flush()
			if err != nil {
				return err
			}
			if done {
				break
			}
			runtime.Gosched()
		}
		f.sent.Store(s.seq)
	}
	return nil
}

func receiveStream(cfg StreamConfig, f *flow, rx batchReceiver) (*opener, time.Time, error) {
	o := newOpener(cfg)
	last := time.Now()
	var quiet idle
	for {
		n, err := rx.receive(o)
		if err != nil {
			return o, last, err
		}
		if n > 0 {
			last = time.Now()
			f.received.Store(o.next)
			quiet.reset()
		} else if quiet.over(f, o.next) {
			return o, last, nil
		}
	}
}
