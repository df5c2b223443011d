package engine

import (
	"bytes"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// edgeDefects are those of keys, services and the port that no packet tells, so
// that they are not among those of package defect.
var edgeDefects = map[string]defectCase{
	"SolicitedEverywhere": {
		talk: func(c *talk) {
			solicited := func(wr *verbs.SendWR) { wr.Flags |= verbs.SendSolicited }
			c.post(1, verbs.OpSend, 1028, solicited)
			c.post(2, verbs.OpRDMAWrite, 8, solicited)
			c.skip()
			for _, k := range c.got {
				c.note("SE %v", k.BTH.Solicited)
			}
		},
		sound:     "SE false; SE true; SE false",
		defective: "SE true; SE true; SE true",
	},
	"SegmentsShort": {
		talk: func(c *talk) {
			c.post(1, verbs.OpSend, 2048)
			c.skip()
			for _, k := range c.got {
				c.note("%d bytes", len(k.Payload))
			}
			c.note("as posted: %v", bytes.Equal(sent(c.got), c.h.mem[sourceAt:][:2048]))
		},
		sound:     "1024 bytes; 1024 bytes; as posted: true",
		defective: "1020 bytes; 1020 bytes; 8 bytes; as posted: true",
	},
	"NoLastWQEEvent": {
		talk: func(c *talk) {
			c.sharing(1)
			c.must(c.move(verbs.QPStateErr, 0))
			c.happened()
		},
		sound:     "QP_LAST_WQE_REACHED",
		defective: "no event",
	},
	"AHClosesTwice": {
		setup: setup{nic: func(cfg *Config) { cfg.Limits.AHs = 2 }},
		talk: func(c *talk) {
			ah := c.handle(c.h.pd)
			c.handle(c.h.pd)
			c.h.nic.DestroyAH(ah)
			c.h.nic.DestroyAH(ah)
			for range 2 {
				_, err := c.h.nic.CreateAH(c.h.pd, connAttr(c.addr, 0).AH)
				c.tried(err)
			}
		},
		sound:     "taken; refused",
		defective: "taken; taken",
	},
	"AnswersInError": {
		talk: func(c *talk) {
			c.must(c.move(verbs.QPStateErr, 0))
			c.deliver(c.write(0))
			c.hear()
			c.send(wire.OpSendOnly, 1, data(4), ackReq)
			c.hear()
		},
		sound:     "silence; silence",
		defective: "ACK 0 msn 1; RNR 1 code 12 msn 1",
	},
	"UCReadsSent": {
		setup: onUC,
		talk: func(c *talk) {
			for id, op := range []verbs.WROpcode{verbs.OpRDMARead, verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd} {
				c.try(uint64(id), op, c.h.sge(0, 8))
			}
			n := c.h.nic.Output(c.now, c.ds)
			for _, d := range c.ds[:n] {
				c.note("opcode %#x, %d bytes", d.Payload[0], len(d.Payload))
			}
			c.done()
		},
		sound:     "refused; refused; refused; no completion",
		defective: "taken; taken; taken; opcode 0x2c, 32 bytes; opcode 0x33, 44 bytes; opcode 0x34, 44 bytes; 0 SUCCESS RDMA_READ 8B; 1 SUCCESS COMP_SWAP 8B; 2 SUCCESS FETCH_ADD 8B",
	},
	"UCErrorIsFatal": {
		setup: onUC,
		talk: func(c *talk) {
			c.recv(1, 8)
			c.try(2, verbs.OpSend, verbs.SGE{Addr: 1, Length: 8, LKey: bogusKey})
			c.skip()
			c.done()
			c.standing()
		},
		sound:     "taken; 2 LOC_PROT_ERR; SQE",
		defective: "taken; 2 LOC_PROT_ERR; 1 WR_FLUSH_ERR; ERR",
	},
	"UCDropsFatal": {
		setup: onUC,
		talk: func(c *talk) {
			c.send(wire.OpWriteOnly, 0, as(wire.TransportUC), c.at(0, 4), rkey(bogusKey), data(4))
			c.standing()
			c.back()
			c.must(c.move(verbs.QPStateRTR, rtrMask))
			c.send(wire.OpWriteOnly, -1, as(wire.TransportUC), c.at(0, 4), data(4))
			c.standing()
		},
		sound:     "RTS; RTR",
		defective: "ERR; ERR",
	},
	"UCPartialDelivered": {
		setup: onUC,
		talk: func(c *talk) {
			c.recv(1, 4096)
			c.send(wire.OpSendFirst, 0, as(wire.TransportUC), data(1024))
			c.send(wire.OpSendLast, 2, as(wire.TransportUC), data(8))
			c.send(wire.OpWriteFirst, 3, as(wire.TransportUC), c.at(0, 2056), data(1024))
			c.send(wire.OpWriteLast, 5, as(wire.TransportUC), payload([]byte("the tail")))
			c.done()
			c.note("WRITE placed: %v", string(c.target(2048, 8)) == "the tail")
		},
		sound:     "no completion; WRITE placed: false",
		defective: "1 SUCCESS RECV 2056B; WRITE placed: true",
	},
	"UCStrictPSN": {
		setup: onUC,
		talk: func(c *talk) {
			c.recv(1, 64)
			c.send(wire.OpSendOnly, 1, as(wire.TransportUC), data(4))
			c.done()
			c.send(wire.OpSendOnly, 0, as(wire.TransportUC), data(8))
			c.done()
		},
		sound:     "1 SUCCESS RECV 4B; no completion",
		defective: "no completion; 1 SUCCESS RECV 8B",
	},
	"AreaMissing": {
		talk: func(c *talk) {
			c.q = c.datagramQP(nil)
			c.recv(1, 48)
			d := c.datagram(c.q, 8)
			payload := bytes.Clone(d.Payload[len(d.Payload)-12:][:8])
			c.deliver(d)
			c.done()
			c.note("payload first: %v", bytes.Equal(c.recvBuf(1, 8), payload))
		},
		sound:     "1 SUCCESS RECV 48B; payload first: false",
		defective: "1 SUCCESS RECV 8B; payload first: true",
	},
	"UDLongConsumes": {
		talk: func(c *talk) {
			c.q = c.datagramQP(nil)
			c.recv(1, 48)
			c.deliver(c.datagram(c.q, 12))
			c.done()
			c.standing()
		},
		sound:     "no completion; RTS",
		defective: "1 LOC_LEN_ERR; RTS",
	},
	"MulticastOneCopy": {
		talk: func(c *talk) {
			group := netip.MustParseAddr("239.1.1.1")
			for id := range uint64(2) {
				c.q = c.datagramQP(nil)
				c.must(c.h.nic.Attach(c.q, group))
				c.recv(id, 64)
			}
			c.altered(c.datagram(c.q, 8), func(d *link.Datagram) {
				d.Dst = netip.AddrPortFrom(group, wire.Port)
				copy(d.Payload[5:], []byte{0xff, 0xff, 0xff})
			})
			c.done()
		},
		sound:     "0 SUCCESS RECV 48B; 1 SUCCESS RECV 48B",
		defective: "0 SUCCESS RECV 48B",
	},
	"CNPSlowsAll": {
		talk: func(c *talk) {
			other := c.another(nil)
			full := other.RateBps()
			c.deliver(c.cnp())
			c.note("another slows down: %v", other.RateBps() < full)
		},
		sound:     "another slows down: false",
		defective: "another slows down: true",
	},
	"RateNeverRecovers": {
		talk: func(c *talk) {
			full := c.q.RateBps()
			c.deliver(c.cnp())
			c.to(c.now.Add(time.Second))
			c.note("recovered: %v", c.q.RateBps() == full)
		},
		sound:     "recovered: true",
		defective: "recovered: false",
	},
	"KeysIgnored": {
		talk: func(c *talk) {
			wrongKeys(c)
			c.done()
			c.note("%d MADs", c.h.nic.MADs())
		},
		sound:     "no completion; 0 MADs",
		defective: "1 SUCCESS RECV 48B; 2 SUCCESS RECV 48B; 2 MADs",
	},
	"KeyViolationsUncounted": {
		talk: func(c *talk) {
			wrongKeys(c)
			p := c.h.nic.Port()
			c.note("%d P_Keys, %d Q_Keys", p.BadPKeys, p.QKeyViolations)
		},
		sound:     "2 P_Keys, 2 Q_Keys",
		defective: "0 P_Keys, 0 Q_Keys",
	},
	"PKeyExact": {
		setup: setup{nic: func(cfg *Config) { cfg.PKeys = []uint16{0xffff, 0x8001} }},
		talk: func(c *talk) {
			c.altered(c.write(0), pkey(0x7fff))
			c.hear()
			c.deliver(c.madWith(0x8001, gsiQKey))
			c.deliver(c.madWith(0xffff, gsiQKey))
			c.note("%d MADs", c.h.nic.MADs())
		},
		sound:     "ACK 0 msn 1; 2 MADs",
		defective: "silence; 1 MADs",
	},
	"PortEventsMissing": {
		talk: func(c *talk) {
			c.h.nic.SetPort(false)
			c.h.nic.SetPort(true)
			c.happened()
		},
		sound:     "PORT_ERR; PORT_ACTIVE",
		defective: "no event",
	},
	"RemovedAddressUsed": {
		talk: func(c *talk) {
			c.h.nic.SetGIDs(RoCEv2GIDs(netip.MustParseAddr("10.0.0.9")))
			c.deliver(c.write(0))
			c.hear()
		},
		sound:     "silence",
		defective: "ACK 0 msn 1",
	},
}

// wrongKeys sends datagrams with a wrong P_Key and a wrong Q_Key each, to a QP and
// to QP 1.
func wrongKeys(c *talk) {
	c.q = c.datagramQP(nil)
	c.recv(1, 64)
	c.recv(2, 64)
	c.altered(c.datagram(c.q, 8), pkey(0x1234))
	c.altered(c.datagram(c.q, 8), func(d *link.Datagram) { d.Payload[12] ^= 1 })
	c.deliver(c.madWith(0x1234, gsiQKey))
	c.deliver(c.madWith(0xffff, 7))
}

func pkey(k uint16) func(*link.Datagram) {
	return func(d *link.Datagram) { d.Payload[2], d.Payload[3] = byte(k>>8), byte(k) }
}

// madWith builds a management datagram.
func (c *talk) madWith(pkey uint16, qkey uint32) link.Datagram {
	return c.build(wire.OpSendOnly, 0, as(wire.TransportUD), data(MADLen), func(k *wire.Packet) {
		k.BTH.PKey, k.BTH.DestQP, k.DETH = pkey, gsiQPN, wire.DETH{QKey: qkey, SrcQP: gsiQPN}
	})
}

// cnp builds a congestion notification for the QP.
func (c *talk) cnp() link.Datagram {
	return c.build(0, 0, func(k *wire.Packet) { k.BTH.Opcode, k.Payload = wire.CNP, make([]byte, wire.CNPPayloadLen) })
}

// sent joins the payloads of packets.
func sent(all []wire.Packet) (b []byte) {
	for i := range all {
		b = append(b, all[i].Payload...)
	}
	return b
}
