package nics

import (
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/emu/defects"
	"github.com/fabrictest/fabrictest/emu/defects/rocewire"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/emu/softroce/engine"
	"github.com/fabrictest/fabrictest/verbs"
)

// softRoCEName is the name of the provider.
const softRoCEName = "softroce"

// softRoCE returns the provider of soft-RoCE NICs. roceStack adds the functions that open them, and
// defects.Manager are the defects of the connection manager.
func softRoCE() *Provider {
	return roceStack.addTo(&Provider{
		Name: softRoCEName, Title: "soft-RoCE", Transport: verbs.TransportIB, Protocol: conformance.RoCE,
		Caps: verbs.CapRC | verbs.CapUC | verbs.CapUD | verbs.CapXRC | verbs.CapSRQ | verbs.CapMWType1 | verbs.CapMWType2 |
			verbs.CapAtomics | verbs.CapMulticast | verbs.CapSendInv | verbs.CapLocalInv | verbs.CapFlush | verbs.CapAtomicWrite |
			verbs.CapCM | verbs.CapCongestion | verbs.CapAutoMigration | verbs.CapCredits | verbs.CapZeroBased | verbs.CapResizeCQ,
		Dissector: softroce.Dissector{}, RetransmitCounter: "retransmitted_pkts", HasRNR: true,
		Kernel: KernelDriver{Name: "rxe", verbDefects: rxeVerbDefects}, Profiles: rxeProfiles(), CRCOption: "icrc",
		RankOptions: Options{"ack_unsignaled": false},
		Defects:     fromTables(defects.RoCE.All(), defects.Shared.All(), defects.All(new(rocewire.Defects)), defects.Manager.All()),
	})
}

// roceStack opens soft-RoCE NICs.
var roceStack = &stack[softroce.Config, roceOptions]{
	defaults: roceOptions{ICRC: true, RateControl: true, AckUnsignaled: true},
	configure: func(cfg *softroce.Config, options roceOptions) {
		if !options.ICRC {
			cfg.NIC.ICRC = engine.ICRCOffloaded
		}
		if !options.RateControl {
			disableRateControl(&cfg.NIC)
		}
		cfg.NIC.SparseAckReq = !options.AckUnsignaled
		cfg.CM.MaxConns = options.MaxCMConns
	},
	setDefect: func(cfg *softroce.Config, name string) bool {
		return defects.SetSoftRoCE(&cfg.NIC.Policy, name) || defects.Manager.Set(&cfg.CM, name) ||
			defects.Set(&cfg.Defects, name, true) == nil
	},
	setNIC: func(cfg *softroce.Config, nic *NICConfig) {
		cfg.Name, cfg.Addrs, cfg.Costs = nic.Name, nic.addrs(), nic.costs()
		cfg.V1Addrs, cfg.NIC.PKeys, cfg.NIC.LineRateBps = nic.RoCEv1Addrs, nic.PKeys, nic.LineRateBps
	},
	inWorld: func(w *sim.World, port *sim.Port, nic *NICConfig, cfg softroce.Config) (verbs.Context, error) {
		return asContext(softroce.InWorld(w, port, nic.link(port), cfg))
	},
	onSockets: func(nic *NICConfig, cfg softroce.Config) (verbs.Context, error) {
		cfg.Decorate = nic.captureLink()
		if nic.Cable != nil {
			return asContext(softroce.OnCable(nic.Cable, cfg))
		}
		return asContext(softroce.OnUDP(nic.sockets(), cfg))
	},
}

// roceOptions are the options of soft-RoCE NICs.
type roceOptions struct {
	// ICRC computes and checks the ICRC of packets.
	ICRC bool `json:"icrc"`
	// RateControl lets senders slow down for CNPs.
	RateControl bool `json:"rate_control"`
	// AckUnsignaled requests an ACK for each unsignaled WRITE, not only for four in a send queue.
	AckUnsignaled bool `json:"ack_unsignaled"`
	// MaxCMConns bounds the connections of the connection manager, including those in
	// time wait; 0 for the default.
	MaxCMConns int `json:"max_cm_connections"`
}

// disableRateControl sets the minimum rate of DCQCN above any line rate, so that senders do not
// slow down. ECN marks and CNPs are sent as before. The engine uses the configured values only if
// all are set, so the others are set too, to the published defaults.
func disableRateControl(nic *engine.Config) {
	const unlimited = 10e12
	c := &nic.Congestion
	c.MinRateBps, c.MaxRateBps = unlimited, unlimited
	c.G = 1 << 22 // 1/256, in units of 2^-30
	c.AlphaInterval, c.IncreaseInterval = 55*time.Microsecond, 55*time.Microsecond
	c.ByteCounter, c.FastRecovery = 10e6, 5
	c.RateAIBps, c.RateHAIBps = 40e6, 400e6
}

// rxeProfiles returns the profiles that imitate rxe, the soft-RoCE driver of Linux. The defects are
// names in the tables of package defects and its subpackages, which say what each does.
func rxeProfiles() []Profile {
	return []Profile{
		{
			Name: "rxe-6.12", Title: "soft-RoCE of Linux 6.12",
			Defects:      slices.Concat(rxeDefects, []string{"FlushICRCDoubled", "StaleAckBreaksRead", "LocalErrFlushesAll"}),
			Restrictions: Restrictions{MissingCaps: rxeMissingCaps, PKeys: defaultPartition},
		},
		{
			Name: "rxe-6.1", Title: "soft-RoCE of Linux 6.1",
			Defects: slices.Concat(rxeDefects, []string{
				"NoLengthChecks", "HugeLengthIsAccess", "NAKInReadSucceeds", "UDLongKillsQP", "SQNeverDrains", "NoLastWQEEvent", "LocalErrIsQPOp",
			}),
			Restrictions: Restrictions{MissingCaps: rxeMissingCaps | verbs.CapFlush | verbs.CapAtomicWrite, PKeys: defaultPartition},
		},
	}
}

// rxeVerbDefects are the defects of verbs of rxe.
var rxeVerbDefects = []string{
	"GRHFlagOnConnected", "RecvErrorIsQPOp", "RdAtomicRoundsUp", "RefusedWRStays", "SQNeverDrains", "NoQPEvents", "NoLastWQEEvent", "ValuesUnchecked",
}

// defaultPartition is the P_Key table of rxe.
var defaultPartition = []uint16{0xffff}

// rxeMissingCaps are capabilities of soft-RoCE that rxe does not claim. It claims automatic path
// migration, which it does not implement: that is one of its defects.
const rxeMissingCaps = verbs.CapXRC | verbs.CapCongestion | verbs.CapCredits

// rxeDefects are the defects of rxe in both Linux 6.1 and 6.12. Congestion control and credits are
// not claimed, and their absence is no defect; the profile still leaves them out on the wire.
var rxeDefects = []string{
	// Headers.
	"ECNFromTClass", "FixedHopLimit", "DFUnchecked", "ReservedOpSilent", "RaggedAccepted", "GSIAckReq", "GRHFlagOnConnected", "MigReqZero",
	// Requester.
	"GhostAckCompletes", "AckCompletesRead", "BadRespSucceeds", "RNRTimerTypo", "JiffyTimers", "RetryCount7Forever", "IgnoreSecondNAK",
	"ShortReadHangs", "RdAtomicRoundsUp", "FetchAddLeaks", "PathMTUUnchecked",
	// Responder.
	"DupReadWaits", "SeqNAKAfterRNR", "SubReadContinues", "NoRdAtomicLimit", "FailedImmConsumes", "InvalidateAcked", "ForeignInvalidate",
	"InvalidatePanics", "LongSendIsOpError", "RecvErrorIsQPOp", "WindowBounds", "BindForeignRegion",
	// Other services.
	"UCLosesNext", "UCErrorIsFatal", "PrivilegedQKey", "WrongOpKillsQP",
	// Objects and events.
	"ValuesUnchecked", "RefusedWRStays", "SQDNoResume", "CQErrRepeats", "ArmsWithoutChannel", "NoQPEvents", "MigrationIgnored", "cm.IgnoreCommEst",
	// Capabilities that it does not claim.
	"NoCongestion", "NoCreditReporting", "NoCreditHeeding",
}
