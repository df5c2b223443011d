package defects

import (
	"reflect"
	"strings"
)

// VerbDefects are the defects of verbs. Tags say what each does, and which device has it or which
// requirement or manual page it violates.
type VerbDefects struct {
	// Linux's soft-RoCE and soft-iWARP.
	ArmsWithoutChannel   bool `imitates:"rxe, mlx4, mlx5, irdma" does:"a CQ without channel can be armed"`
	GRHFlagOnConnected   bool `imitates:"rxe" does:"receive completions of connected QPs have the GRH flag"`
	RecvErrorIsQPOp      bool `imitates:"rc/send/2, rxe" does:"a receive with a bad key completes as an operation error"`
	RdAtomicRoundsUp     bool `imitates:"R27" does:"max_rd_atomic is rounded up to a power of two"`
	RefusedWRStays       bool `imitates:"R37" does:"a send posted too early is refused but stays queued"`
	SQNeverDrains        bool `imitates:"R38" does:"a send queue in SQD never reports that it is drained"`
	NoQPEvents           bool `imitates:"R41" does:"no COMM_EST, QP_ACCESS_ERR, QP_REQ_ERR"`
	NoLastWQEEvent       bool `imitates:"R41, srq/5" does:"a failed QP on an SRQ does not report its last receive"`
	ValuesUnchecked      bool `imitates:"rxe" does:"an invalid P_Key index, path MTU, responder depth, RNR timer or retry count is accepted"`
	RTRIgnored           bool `imitates:"siw" does:"a modify to RTR succeeds and has no effect"`
	InvalidateUnreported bool `imitates:"siw" does:"a receive completion does not report the invalidated key"`

	// Counters, requests and completions.
	CounterStuck          string `imitates:"E810, ConnectX-4 Lx" does:"a counter of the device does not change: CounterStuck=NAME"`
	AtomicOperandsSwapped bool   `imitates:"ibv_post_send(3)" does:"the operands of compare and swap are swapped"`
	WCDoubled             bool   `imitates:"ibv_poll_cq(3)" does:"every fourth completion of a CQ is reported twice"`
	WCLost                bool   `imitates:"ibv_poll_cq(3)" does:"every fourth completion of a CQ is lost"`
}

// CounterStuck is the defect that has an argument: the name of a counter.
const CounterStuck = "CounterStuck"

// AllVerbDefects lists the defects in the order of the fields of VerbDefects, without CounterStuck, which
// has an argument. CounterStuck=NAME, a counter that stays 0, is added last.
func AllVerbDefects() []Info {
	stuck, _ := reflect.TypeFor[VerbDefects]().FieldByName(CounterStuck)
	return append(All(new(VerbDefects)), Info{
		Name: CounterStuck + "=NAME", Imitates: stuck.Tag.Get("imitates"), Does: stuck.Tag.Get("does"),
	})
}

// Set enables or disables a defect. spec is its name, or "CounterStuck=NAME" with the name of a
// counter. Only one counter can be stuck: disabling CounterStuck frees it, whatever NAME is. Set
// returns verbs.ErrNotFound for an unknown defect.
func (d *VerbDefects) Set(spec string, on bool) error {
	name, counter, _ := strings.Cut(spec, "=")
	if name != CounterStuck || counter == "" {
		return Set(d, spec, on)
	}
	d.CounterStuck = ""
	if on {
		d.CounterStuck = counter
	}
	return nil
}
