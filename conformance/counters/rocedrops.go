package counters

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rcpeer"
	"github.com/fabrictest/fabrictest/verbs"
)

// drop is a packet that is dropped for one reason.
type drop struct {
	name    string
	why     quantity
	of      string
	changed func(*rcpeer.Conn, ib.Packet) ib.Packet
}

// dropped is how many packets of each kind are sent.
const dropped = 3

var dropKinds = []drop{
	{"wrong-icrc", badICRC, "a wrong ICRC", func(_ *rcpeer.Conn, p ib.Packet) ib.Packet { return p.BadICRC() }},
	{"other-partition", badPKey, "the P_Key of a partition that the device is not in", func(_ *rcpeer.Conn, p ib.Packet) ib.Packet { return p.WithPKey(0x9234) }},
	{"other-version", badVersion, "transport version 3", func(_ *rcpeer.Conn, p ib.Packet) ib.Packet { return p.WithTVer(3) }},
	{"more-pad-than-payload", badPad, "no payload and three pad bytes", func(c *rcpeer.Conn, _ ib.Packet) ib.Packet {
		return ib.SendOnly(c.PeerPSN(0), nil).WithPad([]byte{}).WithPadCnt(3)
	}},
	{"ends-in-its-headers", tooShort, "half of its RETH", func(_ *rcpeer.Conn, p ib.Packet) ib.Packet { return p.WithBody(make([]byte, 8)) }},
	{"other-address", badAddress, "another source address than the peer's", func(c *rcpeer.Conn, p ib.Packet) ib.Packet { return p.From(c.PeerAddr(2)) }},
	{"no-queue-pair", badQPN, "the number of no queue pair", func(_ *rcpeer.Conn, p ib.Packet) ib.Packet { return p.To(0xfedcba) }},
	{"other-service", badService, "an opcode of UC", func(_ *rcpeer.Conn, p ib.Packet) ib.Packet { return p.On(ib.UC).NoAckReq() }},
}

// roceDrops are cases about packets that have no effect but to be counted.
func roceDrops() (all []conformance.Case) {
	for _, d := range dropKinds {
		c := counting("drop-"+d.name, fmt.Sprintf("Packets with %s are dropped, and counted", d.of),
			fmt.Sprintf("%d WRITEs with %s, then a sound one", dropped, d.of), []quantity{d.why},
			func(w *rocePort) found {
				conn := w.Connect(rcpeer.Setup{})
				was := violations(w)
				for range dropped {
					conn.Send(d.changed(conn, writes(conn, 0)))
				}
				conn.Send(writes(conn, 0))
				answered(conn, conn.PeerPSN(0))
				if d.why == badPKey {
					w.Check(violations(w).pkeys-was.pkeys == dropped, fmt.Sprintf("the port's count of bad P_Keys up by %d", dropped), "up by %d", violations(w).pkeys-was.pkeys)
				}
				return found{d.why: exactly(dropped)}
			})
		if d.why == badPKey {
			c.Cite = conformance.Cite{Doc: "IBTA", Section: "C9-43", Rows: []string{"roce/bth/pkey/1"}}
			c.Defects = append(c.Defects, "KeyViolationsUncounted")
		}
		all = append(all, c)
	}
	return append(all,
		counting("drop-not-receiving", "Packets for a queue pair that does not receive yet are dropped, and counted",
			fmt.Sprintf("%d WRITEs to a queue pair in INIT", dropped), []quantity{badState},
			func(w *rocePort) found {
				idle, err := w.Device.CreateQP(verbs.QPInit{
					Type: verbs.QPTypeRC, PD: w.PD, SendCQ: w.CQ, RecvCQ: w.CQ, Caps: verbs.QPCaps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
				})
				w.Must("a queue pair", err)
				w.Must("a queue pair in INIT", idle.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1, Access: verbs.AccessRemoteWrite},
					verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags))
				for i := range dropped {
					w.Send(ib.WriteOnly(ib.PSN(i), ib.At(0x1000, 7, 0), nil).To(uint32(idle.QPN())))
				}
				return found{badState: exactly(dropped)}
			}),
		datagrams("drop-wrong-q-key", "Datagrams with a wrong Q_Key are dropped, and counted", badQKey, func(u *datagramQP) {
			was := violations(u.rocePort)
			u.Send(u.datagram().WithDETH(qKey^1, 0x77))
			u.Sync()
			u.Check(violations(u.rocePort).qkeys-was.qkeys == 1, "the port's count of wrong Q_Keys up by 1", "up by %d", violations(u.rocePort).qkeys-was.qkeys)
		}, "KeyViolationsUncounted"),
		datagrams("drop-opcode-of-nobody", "Datagrams with an opcode that UD does not have are dropped, and counted", badOpcode, func(u *datagramQP) {
			u.Send(u.datagram().WithOpcode(ib.UD.Op(0x1f)))
		}),
		datagrams("drop-no-receive", "Datagrams for which there is no receive are dropped, and counted", noReceive, func(u *datagramQP) {
			u.Send(u.datagram())
		}),
		datagrams("drop-too-long", "Datagrams that are longer than their receive are dropped, and counted", tooLong, func(u *datagramQP) {
			u.PostRecv(u.qp, 1, u.Memory(verbs.GRHLen+4, verbs.AccessLocalWrite).SGE(0, verbs.GRHLen+4))
			u.Send(u.datagram())
		}),
	)
}

// keyCounts are what a port counts itself.
type keyCounts struct{ pkeys, qkeys uint32 }

func violations(w *rocePort) keyCounts {
	a, err := w.Device.QueryPort(1)
	w.Must("a port that can be queried", err)
	return keyCounts{a.BadPKeys, a.QKeyViolations}
}

const qKey = 0x11223344

// datagramQP is a queue pair for datagrams.
type datagramQP struct {
	*rocePort
	qp verbs.QP
}

// datagram is one for the queue pair, of eight bytes.
func (u *datagramQP) datagram() ib.Packet {
	return ib.Datagram(1, qKey, 0x77, rcpeer.Data(8)).To(uint32(u.qp.QPN()))
}

// datagrams is a case about datagrams that are dropped, each for a queue pair of its
// own: some devices are not the same after one.
func datagrams(name, title string, why quantity, drop func(u *datagramQP), defects ...string) conformance.Case {
	c := counting(name, title, fmt.Sprintf("%d such datagrams", dropped), []quantity{why}, func(w *rocePort) found {
		for range dropped {
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
		return found{why: exactly(dropped)}
	})
	c.Needs, c.Labels = verbs.CapUD|verbs.CapRC, []string{"service:ud"}
	if why == badQKey {
		c.Cite = conformance.Cite{Doc: "IBTA", Section: "9.6.1.4.1", Rows: []string{"roce/ud/2"}}
	}
	c.Defects = append(c.Defects, defects...)
	return c
}
