package perflab

import (
	"encoding/binary"
	"hash/crc32"
)

const (
	maxUDPPayload = 65507 // IPv4's, the smaller of the two families
	seqBytes      = 8
	minSegment    = seqBytes + crcBytes

	// probeSeq is the first sequence number of probes, which are not counted.
	probeSeq = 1 << 63
)

// segmentWriter fills segments: a sequence number, bytes copied from application memory,
// and a CRC32 of both.
type segmentWriter struct {
	cfg RawUDPStreamConfig
	app []byte
	off int
	seq uint64
}

func newSegmentWriter(cfg RawUDPStreamConfig) *segmentWriter {
	s := &segmentWriter{cfg: cfg, app: make([]byte, cfg.AppBytes)}
	for i := range s.app {
		s.app[i] = byte(i * 7)
	}
	return s
}

// write fills a segment with the next sequence number, the next bytes of application memory and
// the CRC.
func (s *segmentWriter) write(seg []byte) {
	binary.LittleEndian.PutUint64(seg, s.seq)
	s.seq++
	crcAt := len(seg) - crcBytes
	if !s.cfg.NoCopy {
		if s.off+crcAt > len(s.app) {
			s.off = 0
		}
		copy(seg[seqBytes:crcAt], s.app[s.off:])
		s.off += crcAt - seqBytes
	}
	if !s.cfg.NoCRC {
		binary.LittleEndian.PutUint32(seg[crcAt:], crc32.ChecksumIEEE(seg[:crcAt]))
	}
}

// segmentReader checks the CRC of segments and copies their bytes to application memory.
type segmentReader struct {
	cfg  RawUDPStreamConfig
	app  []byte
	off  int
	next uint64 // highest sequence number seen, plus 1
	res  RawUDPStreamResult
}

func newSegmentReader(cfg RawUDPStreamConfig) *segmentReader {
	return &segmentReader{cfg: cfg, app: make([]byte, cfg.AppBytes)}
}

// read checks and counts a received segment, and copies its bytes. It ignores probes.
func (o *segmentReader) read(seg []byte) {
	crcAt := len(seg) - crcBytes
	if len(seg) != o.cfg.SegmentBytes ||
		(!o.cfg.NoCRC && crc32.ChecksumIEEE(seg[:crcAt]) != binary.LittleEndian.Uint32(seg[crcAt:])) {
		o.res.Corrupt++
		return
	}
	seq := binary.LittleEndian.Uint64(seg)
	if seq >= probeSeq {
		return
	}
	if !o.cfg.NoCopy {
		if o.off+crcAt > len(o.app) {
			o.off = 0
		}
		copy(o.app[o.off:], seg[seqBytes:crcAt])
		o.off += crcAt - seqBytes
	}
	o.next = max(o.next, seq+1)
	o.res.Received++
	o.res.Bytes += uint64(len(seg))
}
