package explore

import (
	"reflect"
	"testing"
)

type digested struct {
	number  int
	name    string
	at      int64
	counter int
	next    *digested
	other   *digested
	table   map[string]*digested
	list    []any
	octets  []byte
	set     [2]bool
}

// ring returns two values that point to each other, at a time.
func ring(now int64) *digested {
	a := &digested{number: 1, name: "a", at: now + 10, octets: make([]byte, 3, 9)}
	b := &digested{number: 2, name: "b", at: now + 20, next: a, other: a}
	a.next, a.other = b, b
	a.table = map[string]*digested{}
	for _, key := range []string{"one", "two", "three", "four", "five", "six"} {
		a.table[key] = &digested{name: key, at: now}
	}
	a.list = []any{1, "x", nil, b}
	return a
}

func digest(now int64, v any) [16]byte {
	d := Digest{Fields: map[string]func(reflect.Value) uint64{
		"digested.at":      func(v reflect.Value) uint64 { return uint64(v.Int() - now) },
		"digested.counter": nil,
	}}
	return d.Sum(v)
}

// Equal states have equal digests, whatever their addresses, times and counters are.
func TestDigestOfEqualStates(t *testing.T) {
	want := digest(100, ring(100))
	other := ring(5000)
	other.counter, other.next.counter = 7, 8
	other.octets = other.octets[:3:3]
	if got := digest(5000, other); got != want {
		t.Errorf("%x, want %x", got, want)
	}
}

// Each change of a state changes its digest.
func TestDigestOfDifferentStates(t *testing.T) {
	known := map[[16]byte]string{digest(0, ring(0)): "none"}
	for name, change := range map[string]func(a *digested){
		"number":       func(a *digested) { a.next.number++ },
		"name":         func(a *digested) { a.name = "" },
		"time":         func(a *digested) { a.at++ },
		"pointer":      func(a *digested) { a.next.other = a.next },
		"nil":          func(a *digested) { a.other = nil },
		"copy":         func(a *digested) { b := *a.next; a.other = &b },
		"map entry":    func(a *digested) { a.table["one"].number++ },
		"map key":      func(a *digested) { delete(a.table, "two") },
		"map values":   func(a *digested) { a.table["one"], a.table["two"] = a.table["two"], a.table["one"] },
		"list":         func(a *digested) { a.list[0] = 2 },
		"list type":    func(a *digested) { a.list[0] = int8(1) },
		"list nil":     func(a *digested) { a.list[2] = 0 },
		"octet":        func(a *digested) { a.octets[2] = 1 },
		"octet length": func(a *digested) { a.octets = a.octets[:2] },
		"array":        func(a *digested) { a.set[1] = true },
	} {
		a := ring(0)
		change(a)
		sum := digest(0, a)
		if same, found := known[sum]; found {
			t.Errorf("%s: the digest is that of %s", name, same)
		}
		known[sum] = name
	}
}

func TestDigestRefusesFunctions(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a function has a digest")
		}
	}()
	digest(0, struct{ f func() }{func() {}})
}
