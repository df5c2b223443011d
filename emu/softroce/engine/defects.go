package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/nic"
)

// Defects imitate the defects of a real device, the Linux soft-RoCE driver (rxe).
// The zero value has none. Defects that no device profile needs are mutants
// (emu/defects/mutants).
//
// The does tag describes a defect; the imitates tag names its source: an entry of
// docs/defects.md, a requirement, or a device.
type Defects struct {
	InvalidateAcked   bool `imitates:"R22" does:"a failed remote invalidate is acknowledged"`
	InvalidatePanics  bool `imitates:"R23" does:"invalidating a free window kills the device"`
	NoRdAtomicLimit   bool `imitates:"R28" does:"excess READs and atomics are executed and overwrite replay memory"`
	SeqNAKAfterRNR    bool `imitates:"R29" does:"a sequence NAK follows an RNR NAK"`
	LongSendIsOpError bool `imitates:"R32" does:"a SEND beyond the receive buffer is NAKed as operational error"`
	FailedImmConsumes bool `imitates:"R33" does:"a refused WRITE with immediate uses up a receive"`
	SubReadContinues  bool `imitates:"R40" does:"a retried part of a READ is answered MIDDLE, LAST, and earlier parts are then lost"`
	NoLengthChecks    bool `imitates:"R43" does:"wrong lengths of packets of SENDs are accepted"`
	DupReadWaits      bool `imitates:"R46" does:"an earlier duplicate READ waits behind a later one's answer"`

	StaleAckBreaksRead bool `imitates:"R17" does:"an old ACK among READ responses completes the READ with a hole"`
	AckCompletesRead   bool `imitates:"R18" does:"a plain ACK completes a READ"`
	BadRespSucceeds    bool `imitates:"R19" does:"malformed responses complete the work request with success"`
	ShortReadHangs     bool `imitates:"R20" does:"a short READ response stalls the queue for good"`
	LocalErrFlushesAll bool `imitates:"R25" does:"a local error flushes earlier requests and loses its cause"`
	LocalErrIsQPOp     bool `imitates:"R25" does:"a local error is reported as an operational one, and behind unanswered requests nothing is reported any more"`
	RetryCount7Forever bool `imitates:"R26" does:"retry_cnt 7 never gives up"`
	IgnoreSecondNAK    bool `imitates:"R30" does:"a second NAK in one window is ignored"`
	GhostAckCompletes  bool `imitates:"R31" does:"a response with a PSN never sent completes what is outstanding"`
	RNRTimerTypo       bool `imitates:"R42" does:"RNR timer code 25 is 61.41 ms"`
	JiffyTimers        bool `imitates:"R42" does:"all timers are multiples of 4 ms"`

	NAKInReadSucceeds bool `imitates:"rc/read/19, rxe 6.1" does:"a NAK among the responses completes the READ with success"`

	WrongOpKillsQP    bool `imitates:"R37" does:"an operation that the service lacks is accepted, and fails the QP in its turn"`
	SQDNoResume       bool `imitates:"R38" does:"leaving SQD does not resume the send queue"`
	BindForeignRegion bool `imitates:"rxe, mw/4" does:"a type 2 window is bound to a region of another domain"`
	PathMTUUnchecked  bool `imitates:"rxe, rc/mtu/1" does:"a path MTU above that of the port is accepted"`

	PrivilegedQKey bool `imitates:"R36" does:"a Q_Key with the high bit set is sent as posted"`
	UCLosesNext    bool `imitates:"R39" does:"the first good UC message after a damaged one is lost too"`
	UDLongKillsQP  bool `imitates:"R43" does:"a datagram longer than the receive buffer brings the QP down"`
	UCErrorIsFatal bool `imitates:"uc/9, rxe" does:"a local error takes a UC QP to ERR"`

	// Queues switches off checks of completion and receive queues.
	Queues nic.Defects
	// Memory switches off checks of keys, windows and ranges.
	Memory nic.MemoryDefects
}
