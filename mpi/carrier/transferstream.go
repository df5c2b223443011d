package carrier

import (
	"encoding/binary"
	"fmt"
)

// Without RDMA data goes in packets: putData has the destination address of its data;
// getRequest asks for data, which arrives in getData packets with the ID of the request.

// stream is data for a peer that is sent in packets.
type stream struct {
	transfer *transfer // nil for data that the peer requested
	readID   uint32    // of the request of the peer
	data     []byte
	sent     int
	addr     uint64
	key      uint32
}

// ownMemory returns n bytes of this rank's registered memory, by address and RKey.
func (c *Carrier) ownMemory(addr uint64, key uint32, n int) ([]byte, error) {
	b := c.mem.Find(addr, key, n)
	if b == nil {
		return nil, fmt.Errorf("%w: %d bytes at %#x with key %#x are not registered here", errMalformed, n, addr, key)
	}
	return b, nil
}

// maxStreams limits the unanswered requests of a peer.
const maxStreams = 4096

// sendInPackets starts a transfer without RDMA: it requests the data of a read from the peer, or
// queues the data of a write as packets.
func (c *Carrier) sendInPackets(m *transfer) {
	p := m.peer
	if m.op == OpRead {
		m.pendingBytes = m.n
		c.requestRead(p, m, m.n)
		return
	}
	p.streams = append(p.streams, &stream{transfer: m, data: m.local.Bytes()[:m.n], addr: m.remote.Addr, key: m.remote.Keys[0]})
	c.markBusy(p)
}

// requestRead requests n bytes of the remote memory of a transfer.
func (c *Carrier) requestRead(p *peer, m *transfer, n int) {
	if p.pendingReads == nil {
		p.pendingReads = make(map[uint32]*transfer)
	}
	p.lastReadID++
	p.pendingReads[p.lastReadID] = m
	le := binary.LittleEndian
	req := le.AppendUint32(nil, p.lastReadID)
	req = le.AppendUint64(req, m.remote.Addr)
	req = le.AppendUint32(req, m.remote.Keys[0])
	req = le.AppendUint64(req, uint64(n))
	c.sendOrQueue(p, getRequest, req)
}

// pumpStreams sends the data of writes without RDMA, and of replies to reads, while a transport has
// room, and reports whether it sent any. The last packet of a write is followed by its notice (the
// message to the peer after the data).
func (c *Carrier) pumpStreams(p *peer) (moved bool) {
	for len(p.streams) > 0 && p.lost == nil {
		s := p.streams[0]
		for s.sent < len(s.data) || len(s.data) == 0 && s.transfer == nil { // or the reply to an empty read
			if !c.sendDataPacket(p, s) {
				return moved
			}
			moved = true
			if len(s.data) == 0 {
				break
			}
		}
		if p.lost != nil {
			return moved
		}
		p.streams = p.streams[1:]
		switch m := s.transfer; {
		case m == nil:
		case m.notice.wanted:
			c.Send(p.rank, &m.notice.header, nil, nil)
			c.finishTransfer(m, nil)
		default: // without a notice, the answer to an empty read shows that the data has arrived
			m.pendingBytes = 0
			c.requestRead(p, m, 0)
		}
	}
	return moved
}

// Lengths of the headers of putData and getData, and of a getRequest; maxRead limits its bytes.
const (
	putHead       = 8 + 4
	getHead       = 4
	getRequestLen = 4 + 8 + 4 + 8
	maxRead       = 1 << 40
)

// sendDataPacket sends the next packet of a stream: putData for a write, or getData for the reply
// to a read, which has no transfer. It reports whether a transport had room for it.
func (c *Carrier) sendDataPacket(p *peer, s *stream) bool {
	n := min(len(s.data)-s.sent, c.MaxData()-putHead)
	le := binary.LittleEndian
	b, kind := c.packets.scratch[:0], putData
	if s.transfer != nil {
		b = le.AppendUint64(b, s.addr+uint64(s.sent))
		b = le.AppendUint32(b, s.key)
	} else {
		kind = getData
		b = le.AppendUint32(b, s.readID)
	}
	b = append(b, s.data[s.sent:s.sent+n]...)
	c.packets.scratch = b
	if !c.trySend(p, kind, nil, b) {
		return false
	}
	c.stats.Pieces++
	s.sent += n
	return true
}

// handleData handles a packet of a transfer without RDMA: putData has data to write to this rank's
// memory, getRequest asks for data, and getData has data that this rank asked for.
func (c *Carrier) handleData(p *peer, kind kind, b []byte) error {
	le := binary.LittleEndian
	switch {
	case kind == putData && len(b) >= putHead:
		data := b[putHead:]
		to, err := c.ownMemory(le.Uint64(b), le.Uint32(b[8:]), len(data))
		if err != nil {
			return err
		}
		copy(to, data)
		c.mem.ChargeCopy(len(data)) // the copy takes virtual time
		return nil
	case kind == getRequest && len(b) == getRequestLen:
		n := le.Uint64(b[16:])
		if n > maxRead || len(p.streams) >= maxStreams {
			return fmt.Errorf("%w: request for %d bytes, with %d unanswered", errMalformed, n, len(p.streams))
		}
		from, err := c.ownMemory(le.Uint64(b[4:]), le.Uint32(b[12:]), int(n))
		if err != nil {
			return err
		}
		p.streams = append(p.streams, &stream{readID: le.Uint32(b), data: from})
		c.markBusy(p)
		return nil
	case kind == getData && len(b) >= getHead:
		m, data := p.pendingReads[le.Uint32(b)], b[getHead:]
		if m == nil || len(data) > m.pendingBytes {
			return fmt.Errorf("%w: %d bytes that were not requested", errMalformed, len(data))
		}
		copy(m.local.Bytes()[m.n-m.pendingBytes:m.n], data)
		c.mem.ChargeCopy(len(data))
		if m.pendingBytes -= len(data); m.pendingBytes == 0 {
			delete(p.pendingReads, le.Uint32(b))
			c.finishTransfer(m, nil)
		}
		return nil
	}
	return fmt.Errorf("%w: data packet of %d bytes", errMalformed, len(b))
}
