package counters

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/roce"
	"github.com/fabrictest/fabrictest/verbs"
)

// drop is a modification of a packet that makes the device drop it.
type drop struct {
	name        string
	quantity    quantity
	description string
	modify      func(*roce.Conn, ib.Packet) ib.Packet
}

// dropsPerCase is how many packets of each kind are sent.
const dropsPerCase = 3

var dropKinds = []drop{
	{"wrong-icrc", badICRC, "a wrong ICRC", func(_ *roce.Conn, p ib.Packet) ib.Packet { return p.BadICRC() }},
	{"other-partition", badPKey, "the P_Key of a partition that the device is not in", func(_ *roce.Conn, p ib.Packet) ib.Packet { return p.WithPKey(0x9234) }},
	{"other-version", badVersion, "transport version 3", func(_ *roce.Conn, p ib.Packet) ib.Packet { return p.WithTVer(3) }},
	{"more-pad-than-payload", badPad, "no payload and three pad bytes", func(c *roce.Conn, _ ib.Packet) ib.Packet {
		return ib.SendOnly(c.PeerPSN(0), nil).WithPad([]byte{}).WithPadCnt(3)
	}},
	{"ends-in-its-headers", tooShort, "half of its RETH", func(_ *roce.Conn, p ib.Packet) ib.Packet { return p.WithBody(make([]byte, 8)) }},
	{"other-address", badAddress, "another source address than the peer's", func(c *roce.Conn, p ib.Packet) ib.Packet { return p.From(c.PeerAddr(2)) }},
	{"no-queue-pair", badQPN, "an unknown QPN", func(_ *roce.Conn, p ib.Packet) ib.Packet { return p.To(0xfedcba) }},
	{"other-service", badService, "an opcode of UC", func(_ *roce.Conn, p ib.Packet) ib.Packet { return p.On(ib.UC).NoAckReq() }},
}

// roceDrops returns the cases about packets that are dropped and counted.
func roceDrops() (all []conformance.Case) {
	for _, d := range dropKinds {
		c := roceCase("drop-"+d.name, fmt.Sprintf("Packets with %s are dropped, and counted", d.description),
			fmt.Sprintf("%d WRITEs with %s, then a valid one", dropsPerCase, d.description), []quantity{d.quantity},
			func(w *rocePort) counts {
				conn := w.Connect(roce.Setup{})
				before := keyViolations(w)
				for range dropsPerCase {
					conn.Send(d.modify(conn, writePacket(conn, 0)))
				}
				conn.Send(writePacket(conn, 0))
				awaitPSN(conn, conn.PeerPSN(0))
				if d.quantity == badPKey {
					w.Check(keyViolations(w).pkeys-before.pkeys == dropsPerCase, fmt.Sprintf("the port's counter of bad P_Keys increased by %d", dropsPerCase), "%d", keyViolations(w).pkeys-before.pkeys)
				}
				return counts{d.quantity: exactly(dropsPerCase)}
			})
		if d.quantity == badPKey {
			c.Cite = conformance.Cite{Doc: "IBTA", Section: "C9-43", Rows: []string{"roce/bth/pkey/1"}}
			c.Defects = append(c.Defects, "KeyViolationsUncounted")
		}
		all = append(all, c)
	}
	return append(all,
		roceCase("drop-not-receiving", "Packets for a queue pair that is not in RTR are dropped, and counted",
			fmt.Sprintf("%d WRITEs to a queue pair in INIT", dropsPerCase), []quantity{badState},
			func(w *rocePort) counts {
				idle, err := w.Device.CreateQP(verbs.QPInit{
					Type: verbs.QPTypeRC, PD: w.PD, SendCQ: w.CQ, RecvCQ: w.CQ, Caps: verbs.QPCaps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
				})
				w.Must("a queue pair", err)
				w.Must("a queue pair in INIT", idle.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1, Access: verbs.AccessRemoteWrite},
					verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags))
				for i := range dropsPerCase {
					w.SendPacket(ib.WriteOnly(ib.PSN(i), ib.At(0x1000, 7, 0), nil).To(uint32(idle.QPN())))
				}
				return counts{badState: exactly(dropsPerCase)}
			}),
		udDropCase("drop-wrong-q-key", "Datagrams with a wrong Q_Key are dropped, and counted", badQKey, func(u *datagramQP) {
			before := keyViolations(u.rocePort)
			u.SendPacket(u.datagram().WithDETH(qKey^1, 0x77))
			u.Sync()
			u.Check(keyViolations(u.rocePort).qkeys-before.qkeys == 1, "the port's counter of wrong Q_Keys increased by 1", "%d", keyViolations(u.rocePort).qkeys-before.qkeys)
		}, "KeyViolationsUncounted"),
		udDropCase("drop-opcode-of-nobody", "Datagrams with an opcode that UD does not have are dropped, and counted", badOpcode, func(u *datagramQP) {
			u.SendPacket(u.datagram().WithOpcode(ib.UD.Op(0x1f)))
		}),
		udDropCase("drop-no-receive", "Datagrams without a posted receive are dropped, and counted", noReceive, func(u *datagramQP) {
			u.SendPacket(u.datagram())
		}),
		udDropCase("drop-too-long", "Datagrams that are longer than their receive are dropped, and counted", tooLong, func(u *datagramQP) {
			u.PostRecv(u.qp, 1, u.Memory(verbs.GRHLen+4, verbs.AccessLocalWrite).SGE(0, verbs.GRHLen+4))
			u.SendPacket(u.datagram())
		}),
	)
}

// keyCounts are the key violation counters of a port.
type keyCounts struct{ pkeys, qkeys uint32 }

func keyViolations(w *rocePort) keyCounts {
	a, err := w.Device.QueryPort(1)
	w.Must("a port that can be queried", err)
	return keyCounts{a.BadPKeys, a.QKeyViolations}
}

const qKey = 0x11223344

// datagramQP is a UD queue pair.
type datagramQP struct {
	*rocePort
	qp verbs.QP
}

// datagram returns a datagram of eight bytes to the queue pair.
func (u *datagramQP) datagram() ib.Packet {
	return ib.Datagram(1, qKey, 0x77, roce.Data(8)).To(uint32(u.qp.QPN()))
}

// udDropCase returns a case about dropped datagrams. Each is sent to a new queue pair,
// because some devices change their state.
func udDropCase(name, title string, why quantity, drop func(u *datagramQP), defects ...string) conformance.Case {
	c := roceCase(name, title, fmt.Sprintf("%d such datagrams", dropsPerCase), []quantity{why}, func(w *rocePort) counts {
		for range dropsPerCase {
			u := &datagramQP{rocePort: w}
			var err error
			u.qp, err = w.Device.CreateQP(verbs.QPInit{
				Type: verbs.QPTypeUD, PD: w.PD, SendCQ: w.CQ, RecvCQ: w.CQ, Caps: verbs.QPCaps{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1},
			})
			w.Must("a queue pair", err)
			w.Must("a queue pair in INIT", u.qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1, QKey: qKey}, verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrQKey))
			w.Must("a queue pair in RTR", u.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTR}, verbs.QPAttrState))
			drop(u)
		}
		return counts{why: exactly(dropsPerCase)}
	})
	c.Needs, c.Labels = verbs.CapUD|verbs.CapRC, []string{"service:ud"}
	if why == badQKey {
		c.Cite = conformance.Cite{Doc: "IBTA", Section: "9.6.1.4.1", Rows: []string{"roce/ud/2"}}
	}
	c.Defects = append(c.Defects, defects...)
	return c
}
