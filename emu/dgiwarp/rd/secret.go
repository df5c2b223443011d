package rd

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// Domains separate the numbers that are derived from the secret, so that one for a purpose cannot
// be used for another.
const (
	domainIncarnation = 1
	domainEpoch       = 2
	domainCookie      = 3
)

// derive returns the keyed hash of n, with the secret as the key. The domain makes the values of
// different uses differ.
func (l *Layer) derive(domain uint8, n uint64) uint64 {
	b := l.hashed[:16]
	clear(b)
	b[0] = domain
	binary.LittleEndian.PutUint64(b[8:], n)
	return nic.SipHash(&l.cfg.Secret, b)
}

// incarnation identifies a queue pair across restarts of the host and reuse of its number. It
// is never 0, which means unknown.
func (l *Layer) incarnation(local uint32) uint32 {
	return uint32(l.derive(domainIncarnation, uint64(l.timesClosed[local])<<32|uint64(local))) | 1
}

// newEpoch returns an unpredictable epoch other than 0.
func (l *Layer) newEpoch() wire.Epoch {
	for {
		l.epochs++
		if e := wire.Epoch(l.derive(domainEpoch, l.epochs)); e != 0 {
			return e
		}
	}
}

// cookie returns the proof that a peer must send to start a flow with epoch e, in a time slot.
// It depends on the flow that would be replaced, so that it can start only one flow.
func (l *Layer) cookie(k *Key, p *Peer, e wire.Epoch, slot uint64) uint64 {
	life := l.incarnation(k.Local)
	b := l.hashed[:56]
	clear(b)
	b[0] = domainCookie
	if p != nil && p.has(flagReceiving) {
		b[1] = 1
		binary.LittleEndian.PutUint32(b[4:], uint32(p.remoteEpoch))
	}
	binary.LittleEndian.PutUint32(b[8:], k.Local)
	binary.LittleEndian.PutUint32(b[12:], k.RemoteQP)
	binary.LittleEndian.PutUint32(b[16:], uint32(e))
	binary.LittleEndian.PutUint16(b[20:], k.Remote.Port())
	binary.LittleEndian.PutUint64(b[24:], slot)
	addr := k.Remote.Addr().As16()
	copy(b[32:], addr[:])
	binary.LittleEndian.PutUint32(b[48:], life)
	return nic.SipHash(&l.cfg.Secret, b)
}

// slot returns the number of the time slot for which a cookie is made.
func (l *Layer) slot(now mono.Time) uint64 { return uint64(now) / uint64(l.cfg.Timing.CookieSlot) }
