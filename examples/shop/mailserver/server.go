package mailserver

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

const (
	// takes is how long a mail takes. It is delivered whether or not its sender still waits.
	takes           = 10 * time.Millisecond
	maxRequestBytes = 16 << 10
)

// Mail is one that was delivered.
type Mail struct {
	// Key is its sender's name for it. Two with one key are two mails.
	Key   string `json:"key"`
	To    string `json:"to"`
	Order int64  `json:"order"`
}

// Server is the mail server, with its mails in memory. It may be used by many goroutines.
type Server struct {
	mux *http.ServeMux

	mu        sync.Mutex
	delivered []Mail
}

// New makes a server that has delivered nothing.
func New() *Server {
	s := &Server{mux: http.NewServeMux(), delivered: []Mail{}}
	s.mux.HandleFunc("POST /mails", s.send)
	s.mux.HandleFunc("GET /mails", s.show)
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

func (s *Server) send(w http.ResponseWriter, r *http.Request) {
	var mail Mail
	if json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequestBytes)).Decode(&mail) != nil || mail.Key == "" || mail.To == "" {
		http.Error(w, "a mail needs a key and an address", http.StatusBadRequest)
		return
	}
	<-time.After(takes)
	s.mu.Lock()
	s.delivered = append(s.delivered, mail)
	s.mu.Unlock()
	w.WriteHeader(http.StatusAccepted)
}

// show lists all mails, or those with a key.
func (s *Server) show(w http.ResponseWriter, r *http.Request) {
	key, found := r.FormValue("key"), []Mail{}
	s.mu.Lock()
	for _, mail := range s.delivered {
		if key == "" || key == mail.Key {
			found = append(found, mail)
		}
	}
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(found) // who has hung up hears nothing
}
