package transport

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// Datagrams is the queue pair of a rail that reaches every rank. A NIC with reliable
// datagrams also executes RDMA on it.
type Datagrams struct {
	SendQueue
	Reliable  bool
	MaxPacket int
	rail      *Rail
	ahs       map[int]verbs.AH // by rank
}

// qKey is the Q_Key of all ranks.
const qKey = 0x0fab7e57

// datagramDepth is the depth of the send queue.
const datagramDepth = 512

// OpenDatagrams creates the rail's datagram queue pair with room for a number of receives, and
// moves it to RTS. packetSize is the longest packet; a NIC without reliable datagrams may lower
// it to the MTU. After an error the result must be closed as well.
func (r *Rail) OpenDatagrams(packetSize, receives int) (*Datagrams, error) {
	d := &Datagrams{rail: r, Reliable: r.Attr.Caps.Has(verbs.CapRD), MaxPacket: packetSize, ahs: make(map[int]verbs.AH)}
	d.Depth = datagramDepth
	if !d.Reliable {
		d.MaxPacket = min(packetSize, r.MTU.Bytes())
	}
	if err := r.ReserveCQEs(receives + datagramDepth); err != nil {
		return d, err
	}
	var err error
	d.QP, err = r.Dev.CreateQP(verbs.QPInit{
		Type: verbs.QPTypeUD, PD: r.PD, SendCQ: r.cq, RecvCQ: r.cq,
		Caps: verbs.QPCaps{MaxSendWR: datagramDepth, MaxRecvWR: receives, MaxSendSGE: 2, MaxRecvSGE: 1},
	})
	if err != nil {
		return d, fmt.Errorf("create a datagram queue pair: %w", err)
	}
	for _, step := range []struct {
		attr verbs.QPAttr
		mask verbs.QPAttrMask
	}{
		{verbs.QPAttr{State: verbs.QPStateInit, Port: 1, QKey: qKey}, verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrQKey},
		{verbs.QPAttr{State: verbs.QPStateRTR}, 0},
		{verbs.QPAttr{State: verbs.QPStateRTS}, verbs.QPAttrSQPSN},
	} {
		if err := d.QP.Modify(step.attr, verbs.QPAttrState|step.mask); err != nil {
			return d, err
		}
	}
	return d, nil
}

// Destination returns the address of a rank's datagram queue pair. The address handle is
// created with the first call for a rank, and kept until Close.
func (d *Datagrams) Destination(rank int, remote Endpoint) (verbs.UD, error) {
	ah := d.ahs[rank]
	if ah == nil {
		var err error
		if ah, err = d.rail.PD.CreateAH(d.rail.address(remote.GID)); err != nil {
			return verbs.UD{}, err
		}
		d.ahs[rank] = ah
	}
	return verbs.UD{AH: ah, QPN: remote.QPN, QKey: qKey}, nil
}

// Fail moves the queue pair to the error state: the NIC no longer accesses memory for it.
func (d *Datagrams) Fail() {
	if d.QP != nil {
		_ = d.QP.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState) // fails if the device is gone
	}
}

// Close closes the queue pair and the address handles.
func (d *Datagrams) Close() error {
	if d.QP == nil {
		return nil
	}
	errs := []error{d.QP.Close()}
	for _, ah := range d.ahs {
		errs = append(errs, ah.Close())
	}
	return errors.Join(errs...)
}
