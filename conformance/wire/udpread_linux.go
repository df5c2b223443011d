package wire

import (
	"cmp"
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

// readLoop reads datagrams from a socket until it is closed.
func (w *UDP) readLoop(s *socket) {
	buf, oob := make([]byte, maxUDPLen), make([]byte, 512)
	var drops uint32
	for {
		var n, oobn, flags int
		var from unix.Sockaddr
		var err error
		cerr := s.conn.Read(func(fd uintptr) bool {
			n, oobn, flags, from, err = unix.Recvmsg(int(fd), buf, oob, 0)
			return !errors.Is(err, unix.EAGAIN)
		})
		switch {
		case cerr != nil:
			return // closed
		case err != nil:
			continue // an ICMP error of an earlier send
		}
		t, err := parseControl(oob[:oobn])
		d, readErr := newReceived(from, s.at, &t, buf[:n])
		err = cmp.Or(err, readErr)
		if flags&unix.MSG_CTRUNC != 0 {
			err = errMissingAncillary
		}
		w.deliver(d, &t, t.drops-drops, err)
		drops = t.drops
	}
}

// deliver queues a datagram for Recv.
func (w *UDP) deliver(d *datagram, t *ancillary, drops uint32, err error) {
	a := arrival{seen: t.seen, err: err}
	if err == nil {
		a.Packet = w.rebuildPacket(d)
	}
	w.add(a, true, uint64(drops)) // the sockets have separate readers
}

// rebuildPacket returns the IP packet of a datagram, as far as its fields are known.
func (w *UDP) rebuildPacket(d *datagram) []byte {
	p := d.packet()
	if d.dst.Addr().Is6() || w.cfg.LookupIPv4ID == nil {
		return p
	}
	id, df, ok := w.cfg.LookupIPv4ID(p)
	if !ok {
		return p
	}
	binary.BigEndian.PutUint16(p[4:], id)
	if !df {
		p[6] &^= 0x40
	}
	p[10], p[11] = 0, 0
	binary.BigEndian.PutUint16(p[10:], packet.Checksum(p[:20]))
	return p
}
