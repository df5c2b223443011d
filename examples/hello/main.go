// Command hello is a program for the hosts of a fabric, as small as one can be that uses RDMA:
// every rank connects to the next one on a ring and writes a greeting into its memory. Run it with
//
//	go build -o /tmp/hello ./examples/hello
//	go run ./cmd/fabrictest lab exec -n 4 -- /tmp/hello
//
// It finds its NIC by its environment (package lab/nics), its neighbours by its
// launcher (package launch), and everything else by verbs.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"time"

	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/verbs"
)

// main joins the launcher's job, greets the neighbours, and reports the outcome to the launcher.
func main() {
	log.SetFlags(0)
	conn, err := launch.Join()
	if err != nil {
		log.Fatal(err)
	}
	err = greet(conn)
	if closeErr := conn.Close(err); err == nil {
		err = closeErr
	}
	if err != nil {
		log.Fatal(err)
	}
}

// qpAddress is the address of a QP, and of the memory that its peer writes to.
type qpAddress struct {
	GID  verbs.GID
	QPN  verbs.QPN
	Addr uint64
	RKey verbs.RKey
}

const timeout = 10 * time.Second

// greet connects an RC QP to each neighbour, exchanging the addresses over conn. It writes a
// greeting into the memory of the next rank, and prints the one from the previous rank.
func greet(conn *launch.Conn) error {
	host, err := nics.FromEnv()
	if err != nil {
		return err
	}
	dev, err := host.NICs[0].Open()
	if err != nil {
		return err
	}
	defer dev.Close()
	pd, err := dev.AllocPD()
	if err != nil {
		return err
	}
	// The first half is the source of our write, the second the target of the peer's.
	buf := make([]byte, 128)
	copy(buf, "hello from "+host.Name)
	mr, err := pd.RegMR(verbs.MRInit{Buf: buf, Access: verbs.AccessLocalWrite | verbs.AccessRemoteWrite})
	if err != nil {
		return err
	}
	cq, err := dev.CreateCQ(verbs.CQInit{Depth: 16})
	if err != nil {
		return err
	}
	const port, gidIndex = 1, 0
	gid, err := dev.QueryGID(port, gidIndex)
	if err != nil {
		return err
	}
	next, prev := (conn.Rank()+1)%conn.Size(), (conn.Rank()+conn.Size()-1)%conn.Size()
	neighbours := [2]int{next, prev}
	var qps [2]verbs.QP // one to each neighbour
	for i, neighbour := range neighbours {
		qps[i], err = dev.CreateQP(verbs.QPInit{
			Type: verbs.QPTypeRC, PD: pd, SendCQ: cq, RecvCQ: cq, Caps: verbs.QPCaps{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1},
		})
		if err != nil {
			return err
		}
		text, err := json.Marshal(qpAddress{gid.GID, qps[i].QPN(), mr.Addr() + uint64(len(buf)/2), mr.RKey()})
		if err != nil {
			return err
		}
		if err := conn.Send(neighbour, text); err != nil {
			return err
		}
	}
	// Every rank sends to its next rank first. With two ranks both neighbours are the same rank, so
	// its first message is the address for our QP to the previous rank: receive that one first.
	var peers [2]qpAddress // of the QPs of the neighbours
	for _, i := range []int{1, 0} {
		text, err := conn.Recv(neighbours[i], timeout)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(text, &peers[i]); err != nil {
			return err
		}
	}
	for i := range qps {
		if err := connect(qps[i], peers[i]); err != nil {
			return err
		}
	}
	if err := conn.Barrier(timeout); err != nil { // until then, the next rank's QP may not be connected
		return err
	}
	_, err = qps[0].PostSend([]verbs.SendWR{{
		Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{verbs.SGEOf(mr, 0, len(buf)/2)},
		Remote: verbs.Remote{Addr: peers[0].Addr, RKey: peers[0].RKey},
	}})
	if err != nil {
		return err
	}
	if err := waitCompletion(cq); err != nil {
		return err
	}
	// After the barrier all writes are acknowledged: that of the previous rank is in our buffer.
	if err := conn.Barrier(timeout); err != nil {
		return err
	}
	greeting, _, _ := bytes.Cut(buf[len(buf)/2:], []byte{0})
	fmt.Printf("%s, at %s\n", greeting, host.Name)
	return nil
}

// connect moves a QP through INIT and RTR to RTS, connected to the QP of peer.
func connect(qp verbs.QP, peer qpAddress) error {
	steps := []struct {
		attr verbs.QPAttr
		mask verbs.QPAttrMask
	}{
		{
			verbs.QPAttr{State: verbs.QPStateInit, Port: 1, Access: verbs.AccessRemoteWrite},
			verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrAccessFlags,
		},
		{
			verbs.QPAttr{
				State: verbs.QPStateRTR, PathMTU: verbs.MTU1024, DestQPN: peer.QPN, MaxDestRdAtomic: 1, MinRNRTimer: 12,
				AH: verbs.AHAttr{GRH: verbs.GRH{DGID: peer.GID, HopLimit: 64}, Port: 1},
			},
			verbs.QPAttrState | verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN |
				verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer,
		},
		{
			verbs.QPAttr{State: verbs.QPStateRTS, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 1},
			verbs.QPAttrState | verbs.QPAttrTimeout | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry | verbs.QPAttrSQPSN | verbs.QPAttrMaxQPRdAtomic,
		},
	}
	for _, s := range steps {
		if err := qp.Modify(s.attr, s.mask); err != nil {
			return err
		}
	}
	return nil
}

// waitCompletion polls for the write's completion. A failed write or a timeout is an error.
func waitCompletion(cq verbs.CQ) error {
	var wc [1]verbs.WC
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); {
		n, err := cq.Poll(wc[:])
		if err != nil {
			return err
		}
		if n == 1 {
			if wc[0].Status != verbs.WCSuccess {
				return fmt.Errorf("the write ended with %v", wc[0].Status)
			}
			return nil
		}
	}
	return fmt.Errorf("no completion after %v", timeout)
}
