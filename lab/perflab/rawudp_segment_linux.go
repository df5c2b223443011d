package perflab

import (
	"encoding/binary"
	"hash/crc32"
)

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
	for i := range s.app {
		s.app[i] = byte(i * 7)
	}
	return s
}

// write fills a segment with the next sequence number and, if the configuration demands work,
// with the next bytes of application memory and the CRC.
func (s *segmentWriter) write(seg []byte) {
	binary.LittleEndian.PutUint64(seg, s.seq)
	s.seq++
	crcAt := len(seg) - crcBytes
	if s.cfg.Work {
		if s.off+crcAt > len(s.app) {
			s.off = 0
		}
		copy(seg[seqBytes:crcAt], s.app[s.off:])
		s.off += crcAt - seqBytes
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

// read checks and counts a received segment, and copies its bytes to application memory. It
// ignores probes.
func (r *segmentReader) read(seg []byte) {
	crcAt := len(seg) - crcBytes
	if len(seg) != r.cfg.Bytes ||
		(r.cfg.Work && crc32.ChecksumIEEE(seg[:crcAt]) != binary.LittleEndian.Uint32(seg[crcAt:])) {
		r.result.Corrupt++
		return
	}
	seq := binary.LittleEndian.Uint64(seg)
	if seq >= firstProbeSeq {
		return
	}
	if r.cfg.Work {
		if r.off+crcAt > len(r.app) {
			r.off = 0
		}
		copy(r.app[r.off:], seg[seqBytes:crcAt])
		r.off += crcAt - seqBytes
	}
	r.next = max(r.next, seq+1)
	r.result.Received++
	r.result.Bytes += uint64(len(seg))
}
