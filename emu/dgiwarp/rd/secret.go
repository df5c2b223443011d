package rd

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/internal/siphash"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// Domains keep what is derived from the secret for one purpose from being of
// use for another.
const (
	domainIncarnation = 1
	domainEpoch       = 2
	domainCookie      = 3
)

// derive makes a number of the secret.
func (l *Layer) derive(domain uint8, n uint64) uint64 {
	b := l.hashed[:16]
	clear(b)
	b[0] = domain
	binary.LittleEndian.PutUint64(b[8:], n)
	return siphash.Sum(&l.cfg.Secret, b)
}

// incarnation tells this life of a queue pair from those before: of the queue
// pair, and of the host. It is never 0, which stands for one that is not known.
func (l *Layer) incarnation(local uint32) uint32 {
	return uint32(l.derive(domainIncarnation, uint64(l.lives[local])<<32|uint64(local))) | 1
}

// newEpoch returns one that nobody can guess, and never 0: that proves nothing.
func (l *Layer) newEpoch() wire.Epoch {
	for {
		l.epochs++
		if e := wire.Epoch(l.derive(domainEpoch, l.epochs)); e != 0 {
			return e
		}
	}
}

// cookie is what a peer must bring to start a flow of the given epoch, now in the
// given slot of time. It is bound to the flow that the new one would replace, so
// that it starts a flow once.
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
	return siphash.Sum(&l.cfg.Secret, b)
}

func (l *Layer) slot(now mono.Time) uint64 { return uint64(now) / uint64(l.cfg.Timing.CookieSlot) }
