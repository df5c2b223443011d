package nics

import (
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/emu/defects"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/tcplink"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softiwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// softIWARP returns the provider of soft-iWARP NICs.
func softIWARP() *Provider {
	const flushed = "a broken connection flushes posted requests"
	return &Provider{
		Name: "softiwarp", Title: "soft-iWARP", Stack: "iWARP over TCP", Transport: verbs.TransportIWARP, Protocol: conformance.IWARP, OverTCP: true,
		Caps: verbs.CapRC | verbs.CapSRQ | verbs.CapMWType1 | verbs.CapMWType2 | verbs.CapAtomics |
			verbs.CapSendInv | verbs.CapLocalInv | verbs.CapCM | verbs.CapZeroBased | verbs.CapResizeCQ,
		UnreportedStatuses: map[verbs.WCStatus]string{
			verbs.WCRetryExcErr:    flushed,
			verbs.WCRNRRetryExcErr: "a message without a posted receive ends the connection",
			verbs.WCRemInvReqErr:   "the peer reports the error by a Terminate message",
		},
		Kernel:   KernelDriver{Name: "siw", Options: Options{"siw_peer": true}},
		Profiles: siwProfiles(), driverDefects: siwVerbDefects,
		Options: optionNames[iwarpOptions](), CRCOption: "crc",
		newOpener:         func(p *Provider, s Setup) (Opener, error) { return newIWARPOpener(p, s) },
		checkEngineDefect: func(spec string) error { return setIWARPDefect(new(softiwarp.Config), spec) },
		Defects:           fromTables(defects.IWARP.All(), defects.MPA.All(), defects.RDMAP.All(), defects.Shared.All()),
	}
}

// iwarpOptions are the options of soft-iWARP NICs.
type iwarpOptions struct {
	// Markers requests MPA markers from peers.
	Markers bool `json:"markers"`
	// CRC requests the MPA CRC. Without it, the CRC is used if the peer requests it.
	CRC bool `json:"crc"`
	// ClientServer uses the connection model of RFC 5044 when it connects: the passive
	// side may not send first. When it accepts, it follows the request.
	ClientServer bool `json:"client_server"`
	// SIWPeer adapts to peers with siw, which rejects a CRC that is split over two TCP
	// segments, and may process a first frame only when another arrives.
	SIWPeer bool `json:"siw_peer"`
}

// iwarpOpener opens soft-iWARP NICs.
type iwarpOpener struct {
	caps verbs.Caps
	cfg  softiwarp.Config
}

// newIWARPOpener returns an opener of soft-iWARP NICs with the defects and options of a setup.
func newIWARPOpener(p *Provider, s Setup) (*iwarpOpener, error) {
	o := &iwarpOpener{caps: p.Caps}
	for _, name := range s.Defects {
		if err := setIWARPDefect(&o.cfg, name); err != nil {
			return nil, err
		}
	}
	options, err := decode(p, s.Options, iwarpOptions{CRC: true})
	if err != nil {
		return nil, err
	}
	o.cfg.NIC.MPA.Markers, o.cfg.NIC.MPA.NoCRC, o.cfg.ClientServer = options.Markers, !options.CRC, options.ClientServer
	if options.SIWPeer {
		// Frames are aligned to TCP segments, and an empty WRITE follows a first frame.
		o.cfg.NIC.MPA.Align, o.cfg.NIC.EmptyWriteAfter = true, 50*time.Millisecond
	}
	return o, nil
}

// Caps implements Opener.
func (o *iwarpOpener) Caps() verbs.Caps { return o.caps }

// setIWARPDefect sets a defect of the engine in a configuration. It returns an error if there
// is no such defect.
func setIWARPDefect(cfg *softiwarp.Config, spec string) error {
	return applyDefect(spec, func(name string) bool { return defects.SetSoftIWARP(&cfg.NIC.Policy, name) })
}

// deviceConfig returns the opener's configuration with the name, addresses and costs of a NIC.
func (o *iwarpOpener) deviceConfig(nic NICConfig) softiwarp.Config {
	cfg := o.cfg
	cfg.Name, cfg.Addrs = nic.Name, nic.addrs()
	cfg.Costs = nic.costs()
	return cfg
}

// InWorld implements Opener.
func (o *iwarpOpener) InWorld(w *sim.World, port *sim.Port, at NICConfig) (verbs.Context, error) {
	var streams link.StreamNet = port.StreamHost()
	if at.WrapStreams != nil {
		streams = at.WrapStreams(streams)
	}
	return asContext(softiwarp.InWorld(w, port, streams, o.deviceConfig(at)))
}

// OnSockets implements Opener.
func (o *iwarpOpener) OnSockets(at NICConfig) (verbs.Context, error) {
	cfg := o.deviceConfig(at)
	if at.Capture != nil {
		cfg.Decorate = func(n link.StreamWaiter) link.StreamWaiter {
			return at.Capture.WrapStreams(at.Name, n).(link.StreamWaiter)
		}
	}
	return asContext(softiwarp.OnTCP(tcplink.Config{}, cfg))
}

// siwProfiles imitate siw, the soft-iWARP driver of Linux.
func siwProfiles() []Profile {
	return []Profile{
		{Name: "siw-6.12", Title: "soft-iWARP of Linux 6.12", Defects: siwDefects, Restrictions: siwRestrictions},
		{Name: "siw-6.1", Title: "soft-iWARP of Linux 6.1", Defects: siwDefects, Restrictions: siwRestrictions},
	}
}

// siwVerbDefects are the defects of verbs of siw.
var siwVerbDefects = []string{"RTRIgnored", "InvalidateUnreported"}

// siwRestrictions are those of siw: programs cannot bind memory windows or use
// invalidation, and as a client it only knows the model of RFC 5044.
var siwRestrictions = Restrictions{MissingCaps: verbs.CapAtomics | verbs.CapMWType1 | verbs.CapMWType2 | verbs.CapSendInv, Options: Options{"client_server": true}}

// siwDefects are the defects of siw, whose versions do not differ on the wire.
// BusyCloseIsIdle is left out, because it is coarser than siw's behaviour, which
// FINDropsAnswers hides. NeverRaisesCRC and RefusesPlainReply belong to a siw built
// with CRC.
var siwDefects = []string{
	// Start-up.
	"NoStartupTerminate", "RTRIgnored", "NeverAsksCRC", "RefusesMarkers", "EchoesFlags", "TakesRevision0", "PrivateData256", "LengthWraps",
	"BadReplyHangs", "DepthsAlwaysCount", "OneRTR", "NoFallback", "NoFence", "EarlyFence", "FirstFPDUStuck", "IRDRoundedUp", "ORDRoundedUp",
	// Frames.
	"StalePad", "TrailerCut", "HandsUpFirst", "PlacesEarly", "MSSRoundedDown",
	// DDP and RDMAP.
	"TaggedFlagIgnored", "ReadQueueUnchecked", "TaggedInOrder", "WrapUnchecked", "ReadRightsUnchecked", "ReadPayloadSilent",
	"OpcodeChangeSilent", "ShortResponseTaken", "LaterResponseUnchecked", "ZeroResponseChecked", "InvalidateErrorKept", "InvalidateAnything",
	"NeverSolicited", "NoExtensions", "ZeroReadRepeats", "SendsOvertake", "LongIsNoBuffer", "ReadOverflowsStream", "UnaskedIsLocal",
	// Terminates and the end.
	"TermBitsSwapped", "TermPayloadLength", "TermBareOperation", "TermReadStale", "TermInvalidateFlag", "TermSkipped", "TerminateUnreported",
	"InvalidateUnreported", "FINDropsAnswers",
}
