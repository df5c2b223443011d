package agent

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// role is which end of the connection somebody is.
type role string

const (
	roleAgent  role = "fabrictest agent 1: agent"
	roleCaller role = "fabrictest agent 1: caller"
)

// signer is the private key that a role has under a key. Nobody without the key knows
// the public one either.
func (k Key) signer(r role) (ed25519.PrivateKey, error) {
	if k.isZero() {
		return nil, errors.New("an agent without a key: make one by NewKey")
	}
	seed, err := hkdf.Key(sha256.New, k.secret[:], nil, string(r), ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// secured is how an end that has the key in one role talks to the end that has it in
// the other. Certificates are only a vessel for public keys: who issued them, to whom,
// and until when means nothing.
func secured(k Key, own, other role) (*tls.Config, error) {
	mine, err := k.signer(own)
	if err != nil {
		return nil, err
	}
	theirs, err := k.signer(other)
	if err != nil {
		return nil, err
	}
	vessel := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Unix(1<<33, 0)}
	cert, err := x509.CreateCertificate(rand.Reader, vessel, vessel, mine.Public(), mine)
	if err != nil {
		return nil, fmt.Errorf("make the certificate of %s: %w", own, err)
	}
	expected := theirs.Public().(ed25519.PublicKey)
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: mine}},
		ClientAuth:   tls.RequireAnyClientCert,
		// Nobody vouches for these certificates: VerifyConnection looks at the one thing
		// that counts, at both ends and for every connection.
		InsecureSkipVerify:     true,
		SessionTicketsDisabled: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 1 {
				if got, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey); ok && got.Equal(expected) {
					return nil
				}
			}
			return ErrKey
		},
	}, nil
}

// handshake finds out who is at the other end, and gives it so long for that.
func handshake(conn *tls.Conn, limit time.Duration) error {
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	if err := conn.Handshake(); err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}

// refusedKey reports whether the other end said that it does not take our certificate.
// In TLS 1.3 a caller hears that only when it reads for the first time.
func refusedKey(err error) bool {
	const badCertificate = tls.AlertError(42)
	var alert tls.AlertError
	if errors.As(err, &alert) && alert == badCertificate {
		return true
	}
	var remote *net.OpError
	return errors.As(err, &remote) && remote.Op == "remote error"
}
