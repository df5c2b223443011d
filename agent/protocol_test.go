package agent

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/fabrictest/fabrictest/control"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// brokenWrites is a connection that the peer has closed: it can be read, but not written.
type brokenWrites struct{ net.Conn }

func (brokenWrites) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// An agent that stops sends the reason and closes the connection. A client whose next write
// fails before it has read the reason still reads it.
func TestReasonOfPeerIsReadAfterAWriteFailed(t *testing.T) {
	near, far := net.Pipe()
	c := newConn(brokenWrites{near}, Timing{}, control.Reply)
	must.Do(t, c.QueueNow(control.Frame{Kind: control.Ping}))
	run(c)
	go control.New(far, control.Config{}).Close(errStopping)
	var reason *control.CloseError
	if err := c.Serve(func(control.Frame) error { return nil }); !errors.As(err, &reason) || reason.Reason != errStopping.Error() {
		t.Errorf("the connection ended with %v", err)
	}
}

// fill sets every part of a value to a value other than zero.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(-*n % 100))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(*n % 200))
	case reflect.String:
		v.SetString(fmt.Sprint("text ", *n))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), n)
		}
	case reflect.Struct:
		if codecOf(v.Type()).kind == reflect.Invalid {
			return // an address; the verbs' tests have some
		}
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	}
}

// types returns the types of all messages.
func types() (all []reflect.Type) {
	for _, c := range calls {
		for _, p := range slices.Concat(c.in, c.out) {
			all = append(all, p.t)
		}
	}
	return append(all, reflect.TypeFor[failure]())
}

func TestMessagesRoundTrip(t *testing.T) {
	for _, typ := range types() {
		n := 0
		in, out := reflect.New(typ), reflect.New(typ)
		fill(in.Elem(), &n)
		b := encode(nil, in.Interface(), newTable())
		if err := decode(b, out.Interface(), newTable()); err != nil || !reflect.DeepEqual(in.Elem().Interface(), out.Elem().Interface()) {
			t.Errorf("%v: %+v decoded as %+v, %v", typ, in.Elem(), out.Elem(), err)
		}
		if len(b) < codecOf(typ).minLen {
			t.Errorf("%v: %d bytes, and it should have %d at least", typ, len(b), codecOf(typ).minLen)
		}
		for i := range b {
			if err := decode(b[:i], reflect.New(typ).Interface(), newTable()); err == nil {
				t.Errorf("%v: %d bytes of %d are a message", typ, i, len(b))
				break
			}
		}
		if err := decode(append(b, 0), out.Interface(), newTable()); !errors.Is(err, errBadMessage) {
			t.Errorf("%v: a byte too many: %v", typ, err)
		}
	}
}

// A short message must not allocate much memory.
func TestDecodeChecksLengthsBeforeAllocating(t *testing.T) {
	b := append([]byte{0xff, 0xff, 0xff, 0x01}, make([]byte, 100)...)
	var wrs []verbs.SendWR
	if err := decode(b, &wrs, newTable()); !errors.Is(err, errBadMessage) || wrs != nil {
		t.Errorf("%v, %d elements", err, len(wrs))
	}
}

// Every error of package verbs keeps its identity.
func TestVerbsSentinelsKeepIdentity(t *testing.T) {
	f := must.Get(parser.ParseFile(token.NewFileSet(), filepath.Join("..", "verbs", "errors.go"), nil, 0))(t)
	n := 0
	ast.Inspect(f, func(x ast.Node) bool {
		if v, ok := x.(*ast.ValueSpec); ok && strings.HasPrefix(v.Names[0].Name, "Err") {
			n++
		}
		return true
	})
	known := 0
	for _, s := range sentinels {
		if s != ErrHostCannot {
			known++
		}
	}
	if n == 0 || n != known {
		t.Errorf("package verbs has %d errors, and %d of them are known here: add the others to sentinels, at its end", n, known)
	}
}

func TestErrorsKeepTextAndIdentity(t *testing.T) {
	cross := func(err error) error {
		f := failureOf(err)
		var g failure
		must.Do(t, decode(encode(nil, &f, nil), &g, nil))
		return g.err()
	}
	if cross(nil) != nil {
		t.Error("no error became one")
	}
	reject := &verbs.RejectError{Reason: 7, Text: "no", PrivateData: []byte{1}}
	all := []error{
		errors.New("something else"),
		&verbs.OpError{Op: "post_send", Obj: "qp 0x11", Err: fmt.Errorf("%w: list of 9", verbs.ErrInvalid)},
		fmt.Errorf("around: %w", &verbs.OpError{Op: "a", Err: &verbs.OpError{Op: "b", Obj: "c", Err: verbs.ErrBusy}}),
		reject, &verbs.OpError{Op: "connect", Err: reject},
		errors.Join(verbs.ErrTimeout, ErrHostCannot), &verbs.OpError{Op: "nothing"},
	}
	for _, s := range sentinels {
		all = append(all, s, fmt.Errorf("wrapped: %w", s))
	}
	for _, err := range all {
		far := cross(err)
		if far.Error() != err.Error() {
			t.Errorf("%q decoded as %q", err, far)
		}
		for _, s := range sentinels {
			if errors.Is(err, s) != errors.Is(far, s) {
				t.Errorf("%q: whether it is %q has changed", err, s)
			}
		}
		var here, there *verbs.OpError
		for e, f := err, far; ; e, f = here.Err, there.Err {
			is := errors.As(e, &here)
			if is != errors.As(f, &there) || is && (here.Op != there.Op || here.Obj != there.Obj) {
				t.Errorf("%q: %+v decoded as %+v", err, here, there)
				break
			}
			if !is || here.Err == nil {
				break
			}
		}
		var r, q *verbs.RejectError
		if is := errors.As(err, &r); is != errors.As(far, &q) || is && !reflect.DeepEqual(r, q) {
			t.Errorf("%q: %+v decoded as %+v", err, r, q)
		}
	}
}

func TestKeyTextAndFiles(t *testing.T) {
	k := NewKey()
	if k == NewKey() {
		t.Fatal("the same key twice")
	}
	text := k.Text()
	if again, err := ParseKey(" " + text + "\n"); err != nil || again != k || strings.ContainsAny(text, "\n ") {
		t.Errorf("%q: %v", text, err)
	}
	secret := strings.TrimPrefix(text, keyPrefix)
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if s := fmt.Sprintf(format, k); strings.Contains(s, secret) || strings.Contains(s, fmt.Sprint(k.secret[0], " ", k.secret[1])) {
			t.Errorf("%s prints the key: %s", format, s)
		}
	}
	for _, bad := range []string{"", "x", text[:len(text)-1], text + "A", strings.Repeat("A", len(text)), Key{}.Text()} {
		if _, err := ParseKey(bad); err == nil || bad != "" && strings.Contains(err.Error(), secret) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	file := filepath.Join(t.TempDir(), "key")
	must.Do(t, k.WriteFile(file))
	if again, err := ReadKey(file); err != nil || again != k {
		t.Errorf("%v", err)
	}
	if err := k.WriteFile(file); !errors.Is(err, os.ErrExist) {
		t.Errorf("a key was overwritten: %v", err)
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620, 0o602} {
		must.Do(t, os.Chmod(file, mode))
		if _, err := ReadKey(file); err == nil || !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("%v: %v", mode, err)
		}
	}
	if _, err := ReadKey(t.TempDir()); err == nil {
		t.Error("a folder is a key")
	}
	if _, err := tlsConfig(Key{}, roleAgent, roleClient); err == nil {
		t.Error("an agent without a key")
	}
}
