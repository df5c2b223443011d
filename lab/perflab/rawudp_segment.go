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

func (s *segmentWriter) write(seg []byte) {
	binary.LittleEndian.PutUint64(seg, s.seq)
	s.seq++
	body := len(seg) - crcBytes
	if !s.cfg.NoCopy {
		if s.off+body > len(s.app) {
			s.off = 0
		}
		copy(seg[seqBytes:body], s.app[s.off:])
		s.off += body - seqBytes
	}
	if !s.cfg.NoCRC {
		binary.LittleEndian.PutUint32(seg[body:], crc32.ChecksumIEEE(seg[:body]))
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

func (o *segmentReader) read(seg []byte) {
	body := len(seg) - crcBytes
	if len(seg) != o.cfg.SegmentBytes ||
		(!o.cfg.NoCRC && crc32.ChecksumIEEE(seg[:body]) != binary.LittleEndian.Uint32(seg[body:])) {
		o.res.Corrupt++
		return
	}
	seq := binary.LittleEndian.Uint64(seg)
	if seq >= probeSeq {
		return
	}
	if !o.cfg.NoCopy {
		if o.off+body > len(o.app) {
			o.off = 0
		}
		copy(o.app[o.off:], seg[seqBytes:body])
		o.off += body - seqBytes
	}
	o.next = max(o.next, seq+1)
	o.res.Received++
	o.res.Bytes += uint64(len(seg))
}
