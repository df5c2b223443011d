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

// softRoCE returns the provider of soft-RoCE NICs.
func softRoCE() *Provider {
	return &Provider{
		Name: softRoCEName, Title: "soft-RoCE", Stack: "RoCEv2 over UDP", Transport: verbs.TransportIB, Protocol: conformance.RoCE,
		Caps: verbs.CapRC | verbs.CapUC | verbs.CapUD | verbs.CapXRC | verbs.CapSRQ | verbs.CapMWType1 | verbs.CapMWType2 |
			verbs.CapAtomics | verbs.CapMulticast | verbs.CapSendInv | verbs.CapLocalInv | verbs.CapFlush | verbs.CapAtomicWrite |
			verbs.CapCM | verbs.CapCongestion | verbs.CapAutoMigration | verbs.CapCredits | verbs.CapZeroBased | verbs.CapResizeCQ,
		Dissector: softroce.Dissector{}, RetransmitCounter: "retransmitted_pkts", HasRNR: true, HasECN: true,
		Kernel: KernelDriver{Name: "rxe"}, Profiles: rxeProfiles(), driverDefects: rxeVerbDefects,
		Options: optionNames[roceOptions](), CRCOption: "icrc",
		newOpener:         func(p *Provider, s Setup) (Opener, error) { return newRoCEOpener(p, s) },
		checkEngineDefect: func(spec string) error { return setRoCEDefect(new(softroce.Config), spec) },
		Defects:           fromTables(defects.RoCE.All(), defects.Shared.All(), defects.All(new(rocewire.Defects)), defects.Manager.All()),
	}
}

// setRoCEDefect sets a defect of the engine, of the connection manager or of the packets in a
// configuration. It returns an error if there is no such defect.
func setRoCEDefect(cfg *softroce.Config, spec string) error {
	return applyDefect(spec,
		func(name string) bool { return defects.SetSoftRoCE(&cfg.NIC.Policy, name) },
		func(name string) bool { return defects.Manager.Set(&cfg.CM, name) },
		func(name string) bool { return defects.Set(&cfg.Defects, name, true) == nil })
}

// roceOptions are the options of soft-RoCE NICs.
type roceOptions struct {
	// ICRC computes and checks the ICRC of packets.
	ICRC bool `json:"icrc"`
	// RateControl lets senders slow down for CNPs.
	RateControl bool `json:"rate_control"`
	// MaxCMConns bounds the connections of the connection manager, including those in
	// time wait; 0 for the default.
	MaxCMConns int `json:"max_cm_connections"`
}

// roceOpener opens soft-RoCE NICs.
type roceOpener struct {
	caps verbs.Caps
	cfg  softroce.Config
}

// newRoCEOpener returns an opener of soft-RoCE NICs with the defects and options of a setup.
func newRoCEOpener(p *Provider, s Setup) (*roceOpener, error) {
	o := &roceOpener{caps: p.Caps}
	for _, name := range s.Defects {
		if err := setRoCEDefect(&o.cfg, name); err != nil {
			return nil, err
		}
	}
	options, err := decode(p, s.Options, roceOptions{ICRC: true, RateControl: true})
	if err != nil {
		return nil, err
	}
	if !options.ICRC {
		o.cfg.NIC.ICRC = engine.ICRCOffloaded
	}
	if !options.RateControl {
		disableRateControl(&o.cfg.NIC)
	}
	o.cfg.CM.MaxConns = options.MaxCMConns
	return o, nil
}

// Caps implements Opener.
func (o *roceOpener) Caps() verbs.Caps { return o.caps }

// deviceConfig returns the opener's configuration with the fields that differ between NICs.
func (o *roceOpener) deviceConfig(nic NICConfig) softroce.Config {
	cfg := o.cfg
	cfg.Name, cfg.Addrs, cfg.NIC.LineRateBps = nic.Name, nic.addrs(), nic.LineRateBps
	cfg.V1Addrs, cfg.NIC.PKeys = nic.RoCEv1Addrs, nic.PKeys
	cfg.Costs = nic.costs()
	return cfg
}

// InWorld implements Opener.
func (o *roceOpener) InWorld(w *sim.World, port *sim.Port, at NICConfig) (verbs.Context, error) {
	return asContext(softroce.InWorld(w, port, at.link(port), o.deviceConfig(at)))
}

// OnSockets implements Opener.
func (o *roceOpener) OnSockets(at NICConfig) (verbs.Context, error) {
	cfg := o.deviceConfig(at)
	cfg.Decorate = at.captureLink()
	return asContext(softroce.OnUDP(at.sockets(), cfg))
}

// disableRateControl sets the minimum rate of DCQCN above any line rate, so that
// senders do not slow down. Marking and CNPs are unchanged. The engine takes all values or
// none: the others are the published defaults.
func disableRateControl(nic *engine.Config) {
	const unlimited = 10e12
	c := &nic.Congestion
	c.MinRateBps, c.MaxRateBps = unlimited, unlimited
	c.G = 1 << 22 // 1/256, in units of 2^-30
	c.AlphaInterval, c.IncreaseInterval = 55*time.Microsecond, 55*time.Microsecond
	c.ByteCounter, c.FastRecovery = 10e6, 5
	c.RateAIBps, c.RateHAIBps = 40e6, 400e6
}

// rxeProfiles imitate rxe, the soft-RoCE driver of Linux.
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

// rxeMissingCaps are capabilities of soft-RoCE that rxe does not claim. It claims
// automatic path migration, which it does not implement: that is one of its
// defects.
const rxeMissingCaps = verbs.CapXRC | verbs.CapCongestion | verbs.CapCredits

// rxeDefects are the defects of rxe in both Linux 6.1 and 6.12. Congestion control
// and credits are not claimed, and their absence is no defect; the profile still
// leaves them out on the wire.
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
