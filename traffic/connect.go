// Package traffic has the parts from which programs over verbs are built: queue pairs are
// created and connected, receives reposted, requests accounted for, messages filled and
// compared, and latencies counted. Packages scenarios/workload, scenarios/random, perf and
// conformance/interop are such programs.
//
// It opens no device, starts no goroutine and reads no clock besides RealTime, so it works
// in simulated and in real time. A part belongs to the goroutine or program that uses it.
package traffic

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Address returns the address vector of a peer, reached through a local port. The source GID is
// entry sgidIndex of that port's GID table.
func Address(port, sgidIndex uint8, peer verbs.GID) verbs.AHAttr {
	return verbs.AHAttr{Port: port, GRH: verbs.GRH{DGID: peer, SGIDIndex: sgidIndex, HopLimit: 64}}
}

// Connect moves a queue pair from RESET to RTS. attr has the attributes of all transitions;
// those that the queue pair's type does not have are ignored.
func Connect(qp verbs.QP, attr verbs.QPAttr) error {
	if err := ToInit(qp, attr); err != nil {
		return err
	}
	return ToRTS(qp, attr)
}

// ToInit moves a queue pair from RESET to INIT, where receives can be posted. It uses the
// attributes of attr that the transition takes for the queue pair's type.
func ToInit(qp verbs.QP, attr verbs.QPAttr) error {
	mask := verbs.QPAttrPKeyIndex | verbs.QPAttrPort
	if qp.Type() == verbs.QPTypeUD {
		mask |= verbs.QPAttrQKey
	} else {
		mask |= verbs.QPAttrAccessFlags
	}
	return moveTo(verbs.QPStateInit, qp, attr, mask)
}

// ToRTS moves a queue pair from INIT to RTR and RTS. It uses the attributes of attr that the
// transitions take for the queue pair's type.
func ToRTS(qp verbs.QP, attr verbs.QPAttr) error {
	toRTR, toRTS := verbs.QPAttrMask(0), verbs.QPAttrSQPSN
	if qp.Type() != verbs.QPTypeUD {
		toRTR = verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN
	}
	if qp.Type() != verbs.QPTypeUD && qp.Type() != verbs.QPTypeUC {
		toRTS |= verbs.QPAttrTimeout // Linux requires it of an XRC target QP, too
		if qp.Type() != verbs.QPTypeXRCSend {
			toRTR |= verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer
		}
		if qp.Type() != verbs.QPTypeXRCRecv {
			toRTS |= verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry | verbs.QPAttrMaxQPRdAtomic
		}
	}
	if err := moveTo(verbs.QPStateRTR, qp, attr, toRTR); err != nil {
		return err
	}
	return moveTo(verbs.QPStateRTS, qp, attr, toRTS)
}

// moveTo moves a queue pair to a state, with the attributes of a mask.
func moveTo(state verbs.QPState, qp verbs.QP, attr verbs.QPAttr, mask verbs.QPAttrMask) error {
	attr.State = state
	if err := qp.Modify(attr, verbs.QPAttrState|mask); err != nil {
		return fmt.Errorf("move a queue pair to %v: %w", state, err)
	}
	return nil
}

// ToError moves a queue pair to the error state, which flushes its queues.
func ToError(qp verbs.QP) error {
	return qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState)
}

// Listen returns a listener of the connection manager at a free port of a local address.
func Listen(dev verbs.Context, addr netip.Addr, space verbs.PortSpace, backlog int) (verbs.Listener, error) {
	cm, err := dev.CM()
	if err != nil {
		return nil, err
	}
	return cm.Listen(netip.AddrPortFrom(addr, 0), space, backlog)
}

// Dial connects a queue pair to a listener through the connection manager.
func Dial(dev verbs.Context, qp verbs.QP, to netip.AddrPort, param verbs.ConnParam, timeout time.Duration) (verbs.Conn, error) {
	cm, err := dev.CM()
	if err != nil {
		return nil, err
	}
	return cm.Connect(qp, to, param, timeout)
}
