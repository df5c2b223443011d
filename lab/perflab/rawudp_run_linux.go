package perflab

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync/atomic"
	"time"
)

// batchSender sends batches of segments.
type batchSender interface {
	// buffers returns the segments of the next batch, which the caller fills before flush.
	buffers() [][]byte
	// flush sends the rest of the batch without blocking, and reports whether all was sent.
	flush() (done bool, err error)
}

// batchReceiver receives segments without blocking.
type batchReceiver interface {
	// receive passes each segment that has arrived to r.
	receive(r *segmentReader) (segments int, err error)
}

// runStream runs sender and receiver, each on its CPU of cpus, counted from 1; 0 is any. Both
// busy-poll. The result has the counters of both.
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

// waitForPath sends probes until one arrives. The kernel may drop the first datagrams between two
// hosts, because they wait for neighbour discovery in a short queue.
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

// sendStream sends one batch or more, until cfg.Duration has passed or the receiver has failed. At
// most windowBytes are in flight.
func sendStream(w *segmentWriter, f *flow, tx batchSender, start time.Time) error {
	defer f.finished.Store(true)
	bufs := tx.buffers()
	window := uint64(windowBytes / w.cfg.Bytes)
	var base uint64
	for {
		base = f.waitForWindow(w.seq+uint64(len(bufs)), base, window)
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

// receiveStream receives until streamEnded, and returns the time of the last arrival.
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

const (
	maxUDPPayload = 65507 // IPv4's, the smaller of the two families
	seqBytes      = 8

	// firstProbeSeq is the first sequence number of probes, which are not counted.
	firstProbeSeq = 1 << 63

	// kernelSegments is the maximum number of segments in a super-packet (UDP_MAX_SEGMENTS).
	kernelSegments = 64

	// windowBytes is how far the sender may be ahead of the receiver. The window is a shared
	// counter: ideal flow control without packets, so that the receive queue does not overflow.
	windowBytes = 1 << 20
)

// batchSegments returns how many segments of a size make up a batch: as many as fit into one
// super-packet, but no more than the kernel takes.
func batchSegments(bytes int) int { return min(kernelSegments, maxUDPPayload/bytes) }

// segmentWriter fills segments: a sequence number, bytes copied from application memory,
// and a CRC32 of both.
type segmentWriter struct {
	cfg RawStreamConfig
	app []byte // application memory
	off int    // in app, of the next segment
	seq uint64
}

// newSegmentWriter returns a segmentWriter with its memory filled.
func newSegmentWriter(cfg RawStreamConfig) *segmentWriter {
	s := &segmentWriter{cfg: cfg, app: make([]byte, memoryBytes)}
	fillPattern(s.app)
	return s
}

// write fills a segment with the next sequence number and, with cfg.CopyAndCRC, with the next bytes
// of application memory and the CRC.
func (s *segmentWriter) write(seg []byte) {
	binary.LittleEndian.PutUint64(seg, s.seq)
	s.seq++
	crcAt := len(seg) - crcBytes
	if s.cfg.CopyAndCRC {
		payload := seg[seqBytes:crcAt]
		if s.off+len(payload) > len(s.app) {
			s.off = 0
		}
		s.off += copy(payload, s.app[s.off:])
		binary.LittleEndian.PutUint32(seg[crcAt:], crc32.ChecksumIEEE(seg[:crcAt]))
	}
}

// segmentReader checks the CRC of segments and copies their bytes to application memory.
type segmentReader struct {
	cfg    RawStreamConfig
	app    []byte // application memory
	off    int    // in app, of the next segment
	next   uint64 // highest sequence number seen, plus 1
	result RawUDPStreamResult
}

func newSegmentReader(cfg RawStreamConfig) *segmentReader {
	return &segmentReader{cfg: cfg, app: make([]byte, memoryBytes)}
}

// read checks the length of a received segment and counts it. With cfg.CopyAndCRC, it also checks
// the CRC and copies the bytes to application memory. It does not count intact probes of
// waitForPath.
func (r *segmentReader) read(seg []byte) {
	crcAt := len(seg) - crcBytes
	if len(seg) != r.cfg.Bytes ||
		(r.cfg.CopyAndCRC && crc32.ChecksumIEEE(seg[:crcAt]) != binary.LittleEndian.Uint32(seg[crcAt:])) {
		r.result.Corrupt++
		return
	}
	seq := binary.LittleEndian.Uint64(seg)
	if seq >= firstProbeSeq {
		return
	}
	if r.cfg.CopyAndCRC {
		payload := seg[seqBytes:crcAt]
		if r.off+len(payload) > len(r.app) {
			r.off = 0
		}
		r.off += copy(r.app[r.off:], payload)
	}
	r.next = max(r.next, seq+1)
	r.result.Received++
	r.result.Bytes += uint64(len(seg))
}

// stallTimeout is the time without progress after which missing segments count as lost.
const stallTimeout = 200 * time.Millisecond

// spinsPerClockRead is how often a side polls before it yields and reads the clock.
const spinsPerClockRead = 256

// flow is the flow control between a stream's two goroutines. Only one of them writes a field.
type flow struct {
	received atomic.Uint64 // by the receiver: highest sequence number seen, plus 1
	_        [56]byte
	sent     atomic.Uint64 // by the sender
	finished atomic.Bool   // by the sender: sent is final
	_        [47]byte
	failed   atomic.Bool // by either: the other one must stop
}

// waitForWindow waits until at most window of the segments from base to end-1 are in flight, or
// a side has failed. After stallTimeout it counts all of them as lost. It returns the new base: the
// segments before base have arrived or are lost.
func (f *flow) waitForWindow(end, base, window uint64) (newBase uint64) {
	var waitStart time.Time
	for spins := 1; ; spins++ {
		base = max(base, f.received.Load())
		if end-base <= window || f.failed.Load() {
			return base
		}
		if spins%spinsPerClockRead == 0 {
			switch {
			case waitStart.IsZero():
				waitStart = time.Now()
			case time.Since(waitStart) > stallTimeout:
				return end
			}
			yield()
		}
	}
}

// idleTimer decides when a receiver without segments may stop.
type idleTimer struct {
	spins int
	since time.Time
}

// streamEnded reports whether a receiver without new segments may stop: a side has failed, or the
// sender has finished and either the last segment has arrived, or no segment arrived for
// stallTimeout. next is the sequence number after the highest received.
func (i *idleTimer) streamEnded(f *flow, next uint64) bool {
	if f.failed.Load() || (f.finished.Load() && next >= f.sent.Load()) {
		return true
	}
	if i.spins++; i.spins%spinsPerClockRead != 0 {
		return false
	}
	yield()
	if !f.finished.Load() {
		return false
	}
	if i.since.IsZero() {
		i.since = time.Now()
	}
	return time.Since(i.since) > stallTimeout
}
