package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fabrictest/fabrictest/verbs"
)

// capNames are the names of capabilities in messages.
var capNames = []struct {
	cap  verbs.Caps
	name string
}{
	{verbs.CapRC, "RC"},
	{verbs.CapUC, "UC"},
	{verbs.CapUD, "UD"},
	{verbs.CapXRC, "XRC"},
	{verbs.CapSRQ, "shared receive queues"},
	{verbs.CapMWType1, "windows of type 1"},
	{verbs.CapMWType2, "windows of type 2"},
	{verbs.CapAtomics, "atomics"},
	{verbs.CapMulticast, "multicast"},
	{verbs.CapSendInv, "SEND with invalidate"},
	{verbs.CapLocalInv, "local invalidation"},
	{verbs.CapFlush, "FLUSH"},
	{verbs.CapAtomicWrite, "ATOMIC WRITE"},
	{verbs.CapCM, "connection management"},
	{verbs.CapCongestion, "congestion control"},
	{verbs.CapAutoMigration, "automatic path migration"},
	{verbs.CapCredits, "end-to-end credits"},
	{verbs.CapZeroBased, "zero-based regions"},
	{verbs.CapResizeCQ, "completion queues that can be resized"},
	{verbs.CapRD, "reliable datagrams"},
}

// CapNames returns the names of the capabilities, separated by commas.
func CapNames(c verbs.Caps) string {
	var names []string
	for _, n := range capNames {
		if c.Has(n.cap) {
			names = append(names, n.name)
		}
	}
	return strings.Join(names, ", ")
}

// UnclaimedError reports that a case needs a feature that the device does not claim.
type UnclaimedError struct{ What string }

func (e *UnclaimedError) Error() string { return "the device does not claim " + e.What }

// UnsupportedReason returns the reason of an unsupported verdict: the text of err without the
// texts of wrapping errors and of ErrBenchCannot. Cases that are unsupported for the same reason
// therefore have the same text.
func UnsupportedReason(err error) string {
	if unclaimed := new(UnclaimedError); errors.As(err, &unclaimed) {
		return unclaimed.Error()
	}
	if setup := new(SetupError); errors.As(err, &setup) {
		return setup.Error()
	}
	for next := unwrapBenchCannot(err); next != nil; next = unwrapBenchCannot(err) {
		err = next
	}
	// The text of ErrBenchCannot follows the reason, or precedes it.
	reason := strings.Replace(err.Error(), ": "+ErrBenchCannot.Error(), "", 1)
	return strings.TrimPrefix(reason, ErrBenchCannot.Error()+": ")
}

// unwrapBenchCannot removes one layer of context from err: of "a: b: ErrBenchCannot" it returns the
// error "b: ErrBenchCannot". It returns nil if only ErrBenchCannot is left, which has no reason.
func unwrapBenchCannot(err error) error {
	var inner []error
	switch e := err.(type) { //nolint:errorlint // the wrapped errors are needed themselves
	case interface{ Unwrap() error }:
		inner = []error{e.Unwrap()}
	case interface{ Unwrap() []error }:
		inner = e.Unwrap()
	}
	for _, e := range inner {
		if errors.Is(e, ErrBenchCannot) && e != ErrBenchCannot { //nolint:errorlint // the sentinel itself has no reason
			return e
		}
	}
	return nil
}

// SetupError reports that a device does not have the configuration that a case requires.
// A lab returns it when the device rejects the configuration; a lab that cannot
// configure any device like that returns [ErrBenchCannot]. A case returns it when the
// device has made a permitted choice that the case does not cover.
type SetupError struct{ Reason string }

func (e *SetupError) Error() string { return e.Reason }

// String lists the settings of a device that differ from the defaults, separated by commas.
func (s Setup) String() string {
	var settings []string
	add := func(isSet bool, text string) {
		if isSet {
			settings = append(settings, text)
		}
	}
	add(s.Family != 0, fmt.Sprintf("IPv%d", s.Family))
	add(s.TwoAddresses, "two addresses")
	add(s.Markers, "requests MPA markers")
	add(s.NoCRC, "requests no MPA CRC")
	add(s.Reliable, "reliable datagrams")
	add(s.Isolate, "survives errors of a peer")
	add(s.MTU != 0, fmt.Sprintf("an MTU of %d", s.MTU))
	return strings.Join(settings, ", ")
}

// unclaimedProtocol returns the protocol, MPA or datagram-iWARP, that a setting of s belongs to
// and that a device with this transport and these capabilities does not claim; empty if there is
// none. Every device claims the other settings: IPv4, IPv6, several addresses and any MTU.
func (s Setup) unclaimedProtocol(t verbs.Transport, caps verbs.Caps) string {
	iwarp := t == verbs.TransportIWARP
	switch {
	case (s.Markers || s.NoCRC) && !(iwarp && caps.Has(verbs.CapRC)):
		return "MPA"
	case (s.Reliable || s.Isolate) && !(iwarp && caps.Has(verbs.CapUD)):
		return "datagram-iWARP"
	}
	return ""
}

// explainRejection returns the error for a device that rejected the setup of spec: an
// *UnclaimedError if it does not claim to support the setup, and a *Violation if it does. It
// opens the device with its default configuration to learn its claims.
func explainRejection(ctx context.Context, lab Lab, spec BenchSpec, rejection *SetupError) error {
	rejected := spec.Setup
	spec.Setup, spec.Record = Setup{}, new(Record)
	unclaimed := ""
	err := lab.WithBench(ctx, spec, func(b *Bench) error {
		unclaimed = rejected.unclaimedProtocol(b.Device.Info().Transport, b.Caps)
		return nil
	})
	switch {
	case errors.As(err, new(*SetupError)):
		// The SetupError is not wrapped: the verdict must be broken, not unsupported.
		return errors.New("the device failed to open with its default settings: " + err.Error())
	case err != nil:
		return err
	case unclaimed != "":
		return &UnclaimedError{unclaimed}
	}
	return Violated(fmt.Sprintf("a device that accepts the settings it claims to support: %v", rejected), "rejected: "+rejection.Reason)
}
