package fuzz_test

import (
	"testing"

	"pgregory.net/rapid"
)

// FuzzVerbs: whatever verbs are called in whatever order, on every device, each does
// what the model of verbs says that it must; queue pairs are in the states that they
// were taken to, requests complete once, memory that is not the device's to write
// stays as it is, and in the end everything can be closed.
func FuzzVerbs(f *testing.F) {
	for seed := range uint64(48) {
		f.Add(noise(seed, 1<<15))
	}
	f.Fuzz(rapid.MakeFuzz(verbsSequence))
}

func TestVerbsKeepToTheModel(t *testing.T) {
	for i, k := range kinds {
		name := k.name
		if len(k.setup.Options) != 0 {
			name += ", reliable"
		}
		t.Run(name, func(t *testing.T) { rapid.Check(t, func(t *rapid.T) { sequenceOn(t, i) }) })
	}
}

func verbsSequence(t *rapid.T) {
	sequenceOn(t, rapid.IntRange(0, len(kinds)-1).Draw(t, "device"))
}

func sequenceOn(t *rapid.T, kind int) {
	m, err := newMachine(kind)
	if err != nil {
		t.Fatal(err)
	}
	for range rapid.IntRange(0, 2).Draw(t, "outfits") {
		m.outfit(t)
	}
	t.Repeat(map[string]func(*rapid.T){
		"alloc PD": m.allocPD, "close PD": m.closePD,
		"reg MR": m.regMR, "close MR": m.closeMR,
		"alloc MW": m.allocMW, "close MW": m.closeMW, "bind MW": m.bindMW,
		"create AH": m.createAH, "close AH": m.closeAH,
		"create channel": m.createChannel, "close channel": m.closeChannel, "wait event": m.waitEvent,
		"create CQ": m.createCQ, "close CQ": m.closeCQ, "arm": m.armCQ, "resize CQ": m.resizeCQ, "poll": m.pollCQ, "poll more": m.pollCQ,
		"open XRCD": m.openXRCD, "close XRCD": m.closeXRCD,
		"create SRQ": m.createSRQ, "close SRQ": m.closeSRQ, "modify SRQ": m.modifySRQ, "post SRQ": m.postSRQ,
		"create QP": m.createQP, "close QP": m.closeQP, "rise": m.riseQP, "rise more": m.riseQP, "lower": m.lowerQP, "modify QP": m.modifyQP,
		"post recv": m.postRecv, "post recv more": m.postRecv, "multicast": m.multicast,
		"post send": m.postSend, "post send more": m.postSend, "post send yet more": m.postSend, "post send again": m.postSend,
		"async": m.waitAsync, "pass": m.pass, "pass more": m.pass,
	})
	m.finish(t)
}
