package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fabrictest/fabrictest/verbs"
)

// capNames are the capabilities of devices as people call them.
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

// CapWords tell what capabilities there are.
func CapWords(c verbs.Caps) string {
	var words []string
	for _, n := range capNames {
		if c.Has(n.cap) {
			words = append(words, n.name)
		}
	}
	return strings.Join(words, ", ")
}

// UnclaimedError says that a case asks for something that the device never claimed.
type UnclaimedError struct{ What string }

// Error names it.
func (e *UnclaimedError) Error() string { return "the device does not claim " + e.What }

// Inability is why nothing can be said of a device, without what led up to it: so that
// cases that are unsupported for the same reason tell it in the same words.
func Inability(err error) string {
	if unclaimed := new(UnclaimedError); errors.As(err, &unclaimed) {
		return unclaimed.Error()
	}
	if setup := new(SetupError); errors.As(err, &setup) {
		return setup.Error()
	}
	for next := cannotIn(err); next != nil; next = cannotIn(err) {
		err = next
	}
	return strings.TrimPrefix(strings.Replace(err.Error(), ": "+ErrCannot.Error(), "", 1), ErrCannot.Error()+": ")
}

// cannotIn is what an error wraps that wraps ErrCannot in turn.
func cannotIn(err error) error {
	var inner []error
	switch e := err.(type) { //nolint:errorlint // this is how one looks into an error
	case interface{ Unwrap() error }:
		inner = []error{e.Unwrap()}
	case interface{ Unwrap() []error }:
		inner = e.Unwrap()
	}
	for _, e := range inner {
		if errors.Is(e, ErrCannot) && e != ErrCannot { //nolint:errorlint // itself says nothing
			return e
		}
	}
	return nil
}

// SetupError says that a device is not set up as a case wants it. Of a lab, it says
// that the device refused to be: what that means depends on what it claims, see [Judge];
// a lab that has no way to set a device up like that, whatever the device says, wraps
// [ErrCannot] instead. Of a case, it says that the device has chosen something that the
// case is not about, as it may.
type SetupError struct{ Reason string }

// Error gives the reason.
func (e *SetupError) Error() string { return e.Reason }

// String tells how a device has to be set up; empty for one as it comes.
func (s Setup) String() string {
	var words []string
	say := func(yes bool, text string) {
		if yes {
			words = append(words, text)
		}
	}
	say(s.Family != 0, fmt.Sprintf("IPv%d", s.Family))
	say(s.TwoAddresses, "two addresses")
	say(s.Markers, "asks for markers")
	say(s.NoCRC, "asks for no CRC")
	say(s.Reliable, "reliable datagrams")
	say(s.Isolate, "survives what a peer does wrong")
	say(s.MTU != 0, fmt.Sprintf("an MTU of %d", s.MTU))
	return strings.Join(words, ", ")
}

// unclaimed names the protocol that a setup asks for an option of, and that a device
// does not claim to talk; empty if there is none. Both versions of IP, several addresses
// and any MTU are claimed by whoever talks IP.
func (s Setup) unclaimed(t verbs.Transport, caps verbs.Caps) string {
	iwarp := t == verbs.TransportIWARP
	switch {
	case (s.Markers || s.NoCRC) && !(iwarp && caps.Has(verbs.CapRC)):
		return "MPA"
	case (s.Reliable || s.Isolate) && !(iwarp && caps.Has(verbs.CapUD)):
		return "datagram-iWARP"
	}
	return ""
}

// refused says what it means that a device could not be set up as a case wants it:
// that it never claimed what is asked for, or that it claims and refuses it. What it
// claims is asked of a device as it comes.
func refused(ctx context.Context, lab Lab, job Job, why *SetupError) error {
	asked := job.Setup
	job.Setup, job.Record = Setup{}, new(Record)
	unclaimed := ""
	err := lab.Try(ctx, job, func(b *Bench) error {
		unclaimed = asked.unclaimed(b.Device.Info().Transport, b.Caps)
		return nil
	})
	switch {
	case errors.As(err, new(*SetupError)):
		// It is not wrapped: it is no setup that this one refuses.
		return errors.New("the device refuses to be as it comes: " + err.Error())
	case err != nil:
		return err
	case unclaimed != "":
		return &UnclaimedError{unclaimed}
	}
	return Violated(fmt.Sprintf("a device that can be set up as it claims to: %v", asked), "it refuses: "+why.Reason)
}
