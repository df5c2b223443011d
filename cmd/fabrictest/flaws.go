package main

import (
	"reflect"
	"strconv"
	"strings"

	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/emu/softroce/cm"
	"github.com/fabrictest/fabrictest/emu/softroce/engine"
)

// flaws are what is wrong with every NIC of a run, on purpose.
type flaws struct {
	nic softroce.Quirks
	cm  cm.Quirks
}

// managerPrefix tells the quirks of the connection manager from the NIC's.
const managerPrefix = "cm."

// set gives the NICs another flaw: NAME, cm.NAME or cm.NAME=NUMBER.
func (f *flaws) set(spec string) error {
	name, number, hasNumber := strings.Cut(spec, "=")
	field := reflect.Value{}
	if rest, ok := strings.CutPrefix(name, managerPrefix); ok {
		field = reflect.ValueOf(&f.cm).Elem().FieldByName(rest)
	}
	kind := reflect.Invalid
	if field.IsValid() {
		kind = field.Kind()
	}
	switch {
	case kind == reflect.Uint64:
		n, err := strconv.ParseUint(number, 10, 64)
		if err != nil || n == 0 {
			return usagef("--quirk %s: it takes a number from 1 on, %s=3 say", spec, name)
		}
		field.SetUint(n)
	case hasNumber:
		return usagef("--quirk %s: only %sStopAfterConns takes a number", spec, managerPrefix)
	case kind == reflect.Bool:
		field.SetBool(true)
	case f.nic.Set(name, true) != nil:
		return usagef("--quirk: no quirk %q; %s", name, didYouMean(name, flawNames(), "fabrictest quirks"))
	}
	return nil
}

// flawInfo describes a quirk that --quirk takes.
type flawInfo struct {
	Name   string `json:"name"`
	Defect string `json:"imitates,omitempty"`
	Does   string `json:"does"`
}

// allFlaws lists every quirk that --quirk takes: those of the NIC and then those
// of its connection manager.
func allFlaws() (all []flawInfo) {
	for _, q := range engine.AllQuirks() {
		all = append(all, flawInfo{q.Name, q.Defect, q.Does})
	}
	return append(all, managerFlaws...)
}

func flawNames() (names []string) {
	for _, q := range allFlaws() {
		names = append(names, strings.TrimSuffix(q.Name, "=N"))
	}
	return names
}

// managerFlaws are the switches of cm.Quirks. Its addresses are not among them:
// a detour differs from NIC to NIC, and this program gives all the same flaws.
var managerFlaws = []flawInfo{
	{managerPrefix + "IgnoreREQ", "", "connection requests to a listener are never answered"},
	{managerPrefix + "StopAfterConns=N", "R14", "connection requests are ignored after N connections"},
	{managerPrefix + "LeakTimeWait", "", "connections are never freed at the end of time wait"},
	{managerPrefix + "IgnoreUnknownService", "", "requests to a port nobody listens on are not refused"},
	{managerPrefix + "RejectWithoutCommID", "", "a refusal does not say which request it is for"},
	{managerPrefix + "NoRetransmitREP", "", "a lost reply is not sent again"},
	{managerPrefix + "DuplicateREQSecondConn", "", "a repeated request is taken for a new connection"},
	{managerPrefix + "RejectZeroLID", "", "requests without LIDs, which RoCEv2 has not, are refused"},
	{managerPrefix + "NoDREPWhenDisconnected", "", "a disconnect request is answered only while connected"},
	{managerPrefix + "IgnoreCommEst", "", "data that arrives does not stand for a lost confirmation"},
	{managerPrefix + "AcceptAnyPrivateVersion", "", "the version of rdma_cm's header is not checked"},
	{managerPrefix + "NoMRA", "", "the peer is never asked to wait longer"},
	{managerPrefix + "SIDRZeroQKey", "", "a datagram service is resolved without its Q_Key"},
}
