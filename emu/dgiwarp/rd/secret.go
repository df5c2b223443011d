package rd

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
)

// Domains separate the numbers that are derived from the secret, so that one for a purpose cannot
// be used for another.
const (
	domainIncarnation = 1
	domainEpoch       = 2
	domainCookie      = 3
)

// secrets derives unpredictable numbers from the secret of a layer.
type secrets struct {
	key         [16]byte
	epochs      uint64            // made so far
	timesClosed map[uint32]uint32 // how often each QP was closed
	hashed      [56]byte          // input of the hash
}

// derive returns the keyed hash of n. The domain makes the values of different uses differ.
func (x *secrets) derive(domain uint8, n uint64) uint64 {
	b := x.hashed[:16]
	clear(b)
	b[0] = domain
	binary.LittleEndian.PutUint64(b[8:], n)
	return nic.SipHash(&x.key, b)
}

// incarnation identifies a queue pair across restarts of the host and reuse of its number. It
// is never 0, which means unknown.
func (x *secrets) incarnation(local uint32) uint32 {
	return uint32(x.derive(domainIncarnation, uint64(x.timesClosed[local])<<32|uint64(local))) | 1
}

// newEpoch returns an unpredictable epoch other than 0.
func (x *secrets) newEpoch() wire.Epoch {
	for {
		x.epochs++
		if e := wire.Epoch(x.derive(domainEpoch, x.epochs)); e != 0 {
			return e
		}
	}
}

// cookie returns the value with which a peer proves its address in a time slot, to start a flow
// with epoch e. It depends on the epoch of the flow from p that would be replaced, so that a cookie
// can start only one flow, and on the incarnation of the local queue pair, which differs after the
// queue pair is closed.
func (x *secrets) cookie(k *Key, p *Peer, e wire.Epoch, slot uint64) uint64 {
	incarnation := x.incarnation(k.LocalQP)
	b := x.hashed[:56]
	clear(b)
	b[0] = domainCookie
	if p != nil && p.has(flagReceiving) {
		b[1] = 1
		binary.LittleEndian.PutUint32(b[4:], uint32(p.recv.epoch))
	}
	binary.LittleEndian.PutUint32(b[8:], k.LocalQP)
	binary.LittleEndian.PutUint32(b[12:], k.RemoteQP)
	binary.LittleEndian.PutUint32(b[16:], uint32(e))
	binary.LittleEndian.PutUint16(b[20:], k.RemoteAddr.Port())
	binary.LittleEndian.PutUint64(b[24:], slot)
	addr := k.RemoteAddr.Addr().As16()
	copy(b[32:], addr[:])
	binary.LittleEndian.PutUint32(b[48:], incarnation)
	return nic.SipHash(&x.key, b)
}
