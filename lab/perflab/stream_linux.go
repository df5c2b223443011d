package perflab

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"time"

	"golang.org/x/sys/unix"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// RawTCPStream sends messages from a to b. It returns the goodput from first send to last arrival.
func RawTCPStream(a, b RawEndpoint, cfg RawStreamConfig) (gbps float64, err error) {
	const block = false
	client, server, err := connectTCP(a, b, block)
	if err != nil {
		return 0, err
	}
	defer client.close()
	defer server.close()
	out, in := newSender(client, cfg), newReceiver(server, cfg)
	var start, end time.Time
	total := make(chan uint64, 1)
	// A side that fails shuts the connection down, which ends the other.
	err = runOnCPUs([2]int{a.CPU, b.CPU}, func() error {
		defer close(total)
		start = time.Now()
		if err := out.run(start.Add(cfg.Duration)); err != nil {
			client.shutdown()
			return err
		}
		total <- out.sent
		return nil
	}, func() error {
		if err := in.run(total); err != nil {
			server.shutdown()
			return err
		}
		end = time.Now()
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("TCP stream: %w", err)
	}
	return float64(in.received) * 8 / float64(end.Sub(start).Nanoseconds()), nil
}

// chunker divides messages into chunks of application memory.
type chunker struct {
	message int
	left    int // rest of the current message
	off     int // offset in memory
	memory  []byte
}

// newChunker returns a chunker with memory for at least one message.
func newChunker(message int) chunker {
	return chunker{message: message, memory: make([]byte, max(memoryBytes, message))}
}

// next returns the memory of the next chunk. Messages are adjacent in memory, which is used as a
// ring; a chunk is a whole message, or the next chunkMax bytes of a longer one.
func (p *chunker) next() []byte {
	if p.left == 0 {
		p.left = p.message
		if p.off+p.message > len(p.memory) {
			p.off = 0
		}
	}
	n := min(p.left, chunkMax)
	b := p.memory[p.off : p.off+n]
	p.off += n
	p.left -= n
	return b
}

// sender is the sending side.
type sender struct {
	socket
	chunker
	copyAndCRC bool
	batch      int // chunks per send
	buf        []byte
	sent       uint64 // bytes of messages
}

// newSender returns the sending side of a TCP stream, with its memory filled.
func newSender(s socket, cfg RawStreamConfig) *sender {
	out := &sender{socket: s, chunker: newChunker(cfg.Bytes), copyAndCRC: cfg.CopyAndCRC, buf: make([]byte, 0, chunkMax+burst*crcBytes)}
	out.batch = min(burst, max(1, chunkMax/cfg.Bytes)) // as many messages as fit, or one chunk
	fillPattern(out.memory)
	return out
}

// run sends at least one batch, and then further ones until the given time.
func (s *sender) run(until time.Time) error {
	for s.sent == 0 || time.Now().Before(until) {
		b := s.nextBatch()
		for spins := 1; len(b) > 0; spins++ {
			n, err := s.send(b)
			switch {
			case err != nil:
				return err
			case n > 0:
				b = b[n:]
			case spins%spinLimit == 0:
				if err := s.wait(unix.POLLOUT); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// nextBatch returns the next chunks to send, and adds their bytes, without CRCs, to s.sent. With
// copyAndCRC, it copies them to s.buf, each with a CRC after it.
func (s *sender) nextBatch() []byte {
	if !s.copyAndCRC {
		// Without CRCs, consecutive chunks are contiguous in memory.
		n := s.batch * min(s.message, chunkMax)
		if s.off+n > len(s.memory) {
			s.off = 0
		}
		s.off += n
		s.sent += uint64(n)
		return s.memory[s.off-n : s.off]
	}
	batch := s.buf[:0]
	for range s.batch {
		chunk := s.next()
		batch = append(batch, chunk...)
		batch = binary.LittleEndian.AppendUint32(batch, crc32.Checksum(chunk, castagnoli))
		s.sent += uint64(len(chunk))
	}
	return batch
}

// receiver is the receiving side. It handles any segmentation of the stream.
type receiver struct {
	socket
	chunker
	copyAndCRC bool
	buf        []byte
	chunkBytes int    // size of the current chunk; 0 before the first byte
	dest       []byte // destination of the rest of the chunk
	crc        uint32 // of the received part of the chunk
	trailer    []byte // received bytes of the chunk's CRC
	received   uint64 // bytes of complete chunks
}

// newReceiver returns the receiving side of a TCP stream.
func newReceiver(s socket, cfg RawStreamConfig) *receiver {
	return &receiver{socket: s, chunker: newChunker(cfg.Bytes), copyAndCRC: cfg.CopyAndCRC, buf: make([]byte, 4*chunkMax), trailer: make([]byte, 0, crcBytes)}
}

// run receives until all sent bytes have arrived. Their number comes from total when the sender has
// finished. If total is closed without a number, the sender failed and has shut the connection
// down: the next receive returns an error.
func (r *receiver) run(total <-chan uint64) error {
	want := uint64(math.MaxUint64) // not known yet
	var idleSince time.Time
	for spins := 1; r.received < want; spins++ {
		n, err := r.receiveSome()
		if err != nil {
			return err
		}
		if n > 0 {
			spins, idleSince = 0, time.Time{}
			continue
		}
		select {
		case sent, ok := <-total:
			if ok {
				want = sent
			} else {
				total = nil
			}
		default:
		}
		if spins%spinLimit != 0 {
			continue
		}
		if err := r.wait(unix.POLLIN); err != nil {
			return err
		}
		if idleSince.IsZero() {
			idleSince = time.Now()
		} else if time.Since(idleSince) > ioTimeout {
			return fmt.Errorf("%d bytes received, and no more within %v", r.received, ioTimeout)
		}
	}
	return nil
}

// receiveSome receives up to one buffer without blocking, and returns the number of bytes. With
// copyAndCRC, it also copies them and checks their CRCs, as a device does. Without, all receives
// overwrite the same memory.
func (r *receiver) receiveSome() (int, error) {
	if !r.copyAndCRC {
		n, err := r.receive(r.memory[:memoryBytes])
		r.received += uint64(n)
		return n, err
	}
	n, err := r.receive(r.buf)
	if err != nil {
		return n, err
	}
	return n, r.consume(r.buf[:n])
}

// consume copies received bytes to application memory, and checks the CRC of each chunk, which
// may be spread over several calls.
func (r *receiver) consume(b []byte) error {
	for len(b) > 0 {
		if r.chunkBytes == 0 {
			r.dest = r.next()
			r.chunkBytes = len(r.dest)
		}
		if n := min(len(r.dest), len(b)); n > 0 {
			r.crc = crc32.Update(r.crc, castagnoli, b[:n])
			copy(r.dest, b[:n])
			r.dest, b = r.dest[n:], b[n:]
			continue
		}
		n := min(crcBytes-len(r.trailer), len(b))
		r.trailer, b = append(r.trailer, b[:n]...), b[n:]
		if len(r.trailer) < crcBytes {
			continue
		}
		if sum := binary.LittleEndian.Uint32(r.trailer); sum != r.crc {
			return fmt.Errorf("the CRC of the received chunk is %08x, but the sender computed %08x", r.crc, sum)
		}
		r.received += uint64(r.chunkBytes)
		r.chunkBytes, r.crc, r.trailer = 0, 0, r.trailer[:0]
	}
	return nil
}
