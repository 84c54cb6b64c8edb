package daemon

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/idemd/idemd/internal/config"
)

// minHashSecret is how many bytes what keys are hashed with must have: keys can be guessed,
// and so could a short one be with them.
const minHashSecret = 16

// keyShown is how keys are logged.
func keyShown(l config.Logging) (func(key string) string, error) {
	switch l.Keys {
	case "plain":
		return func(key string) string { return key }, nil
	case "none":
		return func(string) string { return "" }, nil
	}
	secret, err := hashSecret(l.HashSecretFile)
	if err != nil {
		return nil, err
	}
	return func(key string) string {
		mac := hmac.New(sha256.New, secret)
		_, _ = mac.Write([]byte(key))
		return "hmac:" + hex.EncodeToString(mac.Sum(nil)[:8])
	}, nil
}

func hashSecret(file string) ([]byte, error) {
	if file == "" {
		secret := make([]byte, 32)
		_, _ = rand.Read(secret)
		return secret, nil
	}
	text, err := config.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("logging.key_hash_secret_file: %w", err)
	}
	secret := bytes.TrimSpace(text)
	if len(secret) < minHashSecret {
		return nil, fmt.Errorf("logging.key_hash_secret_file holds %d bytes: at least %d are needed", len(secret), minHashSecret)
	}
	return secret, nil
}
